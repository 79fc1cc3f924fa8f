// WorkerControl: a worker's control actor. Joins the job; when a plan arrives makes the model's
// memory and starts the data lanes. A later plan takes the place of the one before: new memory, new
// lanes; what is to be moved between the two is the training program's
// (client/sync/plan_transition.h).
#pragma once

#include <memory>

#include "client/plan_handover.h"
#include "client/sync/model_memory.h"
#include "client/sync/syncer.h"
#include "core/trace.h"
#include "device/device.h"
#include "transport/actor.h"
#include "transport/membership/member.h"

namespace poseidon {

struct WorkerOptions {
  MemberOptions member;
  Duration stall_deadline = Seconds(300);
  bool phantom = false;      // no floats: simulation
  bool count_peers = true;   // SyncContext::CountPeers
  Trace* trace = nullptr;    // outlives the actor; may be null
  Device* device = nullptr;  // likewise; the model's memory is pinned for its copies
  // WorkerSessionOptions::devices_update_factors.
  bool devices_update_factors = false;
  bool devices_pack = false;  // likewise
  // Measure the links to other workers after joining (client/link_probe.h).
  bool measure_links = false;
  int workers = 1;  // of the job; for that
};

// The application lane hears kJoined, kPlan once memory and lanes are there (they are in the
// handover then), kStart, kPauseRequest, kPauseAt, and kEnd; it sends kLocalReady to
// Here(kControlLane) when it can train. client/worker_protocol.h is its half.
class WorkerControl : public Actor {
 public:
  WorkerControl(WorkerOptions options, std::shared_ptr<PlanHandover> plans);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void OnPlan(const Envelope& envelope, Outbox& outbox);
  // The number of the present plan.
  uint32_t PlanNumber() const;
  void StartProbe(Outbox& outbox) const;
  static void Forward(const Envelope& envelope, Outbox& outbox);

  WorkerOptions options_;
  std::shared_ptr<PlanHandover> plans_;
  std::shared_ptr<const SyncContext> context_;  // of the present plan; null before the first
  Member member_;
};

}  // namespace poseidon
