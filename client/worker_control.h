// WorkerControl: a worker's control actor. Joins the job; when a plan arrives makes the model's
// memory and starts the data lanes. A later plan takes the place of the one before: new memory, new
// lanes; what is to be moved between the two is the training program's
// (client/sync/plan_transition.h).
#pragma once

#include <memory>

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
  Trace* trace = nullptr;    // outlives the actor; may be null
  Device* device = nullptr;  // likewise; the model's memory is pinned for its copies
  // SessionOptions::devices_update_factors.
  bool devices_update_factors = false;
  bool devices_pack = false;  // likewise
  // Measure the links to other workers after joining (client/link_probe.h).
  bool measure_links = false;
  int workers = 1;  // of the job; for that
};

// What the plan made, for the program that trains. Empty until the first kPlan reaches the
// application lane; changed by others only between the program's kPaused and the next kPlan.
struct WorkerState {
  std::shared_ptr<SyncContext> context;
};

// The application lane hears kJoined, kPlan once memory and lanes are there, kStart, kPauseRequest,
// kPauseAt, and kEnd; it sends kLocalReady to Here(kControlLane) when it can train.
class WorkerControl : public Actor {
 public:
  WorkerControl(WorkerOptions options, std::shared_ptr<WorkerState> state);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void OnPlan(const Envelope& envelope, Outbox& outbox);
  // Of the plan that there is.
  uint32_t PlanNumber() const;
  void StartProbe(Outbox& outbox) const;
  static void Forward(const Envelope& envelope, Outbox& outbox);

  WorkerOptions options_;
  std::shared_ptr<WorkerState> state_;
  Member member_;
};

}  // namespace poseidon
