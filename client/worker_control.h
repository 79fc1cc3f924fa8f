// WorkerControl: a worker's control actor. Joins the job; when a plan arrives makes the model's
// memory and starts the data lanes. A later plan takes the place of the one before: new memory, new
// lanes; what is to be moved between the two is the training program's
// (client/sync/plan_transition.h).
#pragma once

#include <memory>
#include <optional>

#include "client/plan_handover.h"
#include "client/sync/model_memory.h"
#include "client/sync/syncer.h"
#include "core/trace.h"
#include "device/pinned_pool.h"
#include "transport/actor.h"
#include "transport/membership/member.h"

namespace poseidon {

struct WorkerOptions {
  MemberOptions member;
  Duration stall_deadline = Seconds(300);
  bool phantom = false;     // no floats: simulation
  bool count_peers = true;  // SyncContext::CountPeers
  Trace* trace = nullptr;   // outlives the actor; may be null
  AllocateBlock allocate;   // WorkerSessionOptions::allocate
  // WorkerSessionOptions::devices_update.
  bool devices_update = false;
  bool devices_pack = false;  // likewise
  // Of the workers to which the links are measured after joining (client/link_probe.h).
  std::vector<int> measured_distances;
  int workers = 1;        // of the job; for that
  bool recovers = false;  // keep what the job may go back to
};

// The application lane hears kJoined with each view, kPlan once memory and lanes are there (they
// are in the handover then), kStart, kPauseRequest, kPauseAt, kHold (`iteration` is the plan's
// number), and kEnd; it sends kLocalReady to Here(kControlLane) when it can train.
// client/worker_protocol.h is its half.
//
// When the job has lost a node the lanes are stopped first; what the worker has is told when none
// of them, and not the program either, is changing it.
class WorkerControl : public Actor {
 public:
  WorkerControl(WorkerOptions options, std::shared_ptr<PlanHandover> plans);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void OnPlan(const Envelope& envelope, Outbox& outbox);
  // The plan's memory and what else its lanes share: of the plan before, if it has the same layout.
  std::shared_ptr<SyncContext> MakeContext(
      const std::shared_ptr<const wire::PlanAndModel>& plan) const;
  void OnHold(const Envelope& envelope, Outbox& outbox);
  void OnLaneHeld(const Envelope& envelope, Outbox& outbox);
  void OnLocalReady(const Envelope& envelope, Outbox& outbox);
  void SendReady(Outbox& outbox);
  // Answers a hold, if nobody changes the memory any more.
  void TrySendHoldings(Outbox& outbox);
  // The number of the present plan.
  uint32_t PlanNumber() const;
  // Not in a job that recovers: what it may go back to is kept by the lanes, on the host.
  bool DevicesUpdate() const { return options_.devices_update && !options_.recovers; }
  void StartProbe(Outbox& outbox) const;
  static void Forward(const Envelope& envelope, Outbox& outbox);

  WorkerOptions options_;
  std::shared_ptr<PlanHandover> plans_;
  std::shared_ptr<const SyncContext> context_;  // of the present plan; null before the first
  std::optional<uint32_t> hold_;                // its number, from a hold to the next plan
  int running_lanes_ = 0;                       // that have not been held
  // The program has been told of the present plan and has not said that it has what it starts with.
  bool program_loads_ = false;
  bool ready_ = false;  // the program can train under the present plan
  // The scheduler has been told so, and its answer has not come. It answers as often as it is told,
  // which is often where its first answers or the questions were long under way; the program, which
  // answers a start with thousands of messages, hears one.
  bool start_awaited_ = false;
  Member member_;
};

}  // namespace poseidon
