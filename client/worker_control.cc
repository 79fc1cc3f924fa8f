#include "client/worker_control.h"

#include "client/sync_lane.h"

namespace poseidon {

WorkerControl::WorkerControl(WorkerOptions options, std::shared_ptr<WorkerState> state)
    : options_(std::move(options)), state_(std::move(state)), member_(options_.member) {}

void WorkerControl::OnStart(Outbox& outbox) { member_.Start(outbox); }

void WorkerControl::OnTimer(TimerId timer, Outbox& outbox) { member_.OnTimer(timer, outbox); }

void WorkerControl::OnMessage(const Envelope& envelope, Outbox& outbox) {
  switch (envelope.kind) {
    case MessageKind::kPlan:
      if (member_.FromOwnScheduler(envelope)) OnPlan(envelope, outbox);
      return;
    case MessageKind::kStart: {
      if (!member_.FromOwnScheduler(envelope) || state_->context == nullptr) return;
      member_.StartLanes(state_->context->plan.plan().lanes(), outbox);
      Envelope forward = envelope;
      forward.to = Here(kApplicationLane);
      outbox.Send(std::move(forward));
      return;
    }
    case MessageKind::kLocalReady:
      outbox.Send(member_.ToScheduler(MessageKind::kReady));
      return;
    default:
      member_.OnMessage(envelope, outbox);
  }
}

void WorkerControl::OnPlan(const Envelope& envelope, Outbox& outbox) {
  wire::PlanAndModel plan;
  if (state_->context != nullptr || !plan.ParseFromString(envelope.body.ToString())) return;
  auto memory = std::make_shared<ModelMemory>(plan, options_.phantom);
  auto context = std::make_shared<SyncContext>(std::move(plan), std::move(memory));
  context->rank = member_.self().rank;
  context->epoch = envelope.epoch;
  context->stall_deadline = options_.stall_deadline;
  context->phantom = options_.phantom;
  for (int lane = 0; lane < context->plan.plan().lanes(); ++lane) {
    outbox.Attach(kFirstDataLane + lane, std::make_unique<SyncLane>(context, lane, options_.trace));
  }
  state_->context = std::move(context);
  Envelope forward = envelope;
  forward.to = Here(kApplicationLane);
  outbox.Send(std::move(forward));
}

}  // namespace poseidon
