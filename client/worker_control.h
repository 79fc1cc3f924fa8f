// WorkerControl: a worker's control actor. Joins the job; when the plan arrives makes the model's
// memory and starts the data lanes.
#pragma once

#include <memory>

#include "client/model_memory.h"
#include "client/syncer.h"
#include "core/trace.h"
#include "transport/actor.h"
#include "transport/member.h"

namespace poseidon {

struct WorkerOptions {
  MemberOptions member;
  Duration stall_deadline = Seconds(300);
  bool phantom = false;    // no floats: simulation
  Trace* trace = nullptr;  // outlives the actor; may be null
};

// What the plan made, for the program that trains. Empty until kPlan reaches the application lane,
// not changed afterwards.
struct WorkerState {
  std::shared_ptr<SyncContext> context;
};

// The application lane hears kJoined, kPlan once memory and lanes are there, kStart, and kEnd; it
// sends kLocalReady to Here(kControlLane) when it can train.
class WorkerControl : public Actor {
 public:
  WorkerControl(WorkerOptions options, std::shared_ptr<WorkerState> state);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void OnPlan(const Envelope& envelope, Outbox& outbox);

  WorkerOptions options_;
  std::shared_ptr<WorkerState> state_;
  Member member_;
};

}  // namespace poseidon
