// SchedulerActor: how long the layers compute, and going over to another plan.
#include <algorithm>

#include "proto/plan_members.h"
#include "scheduler/scheduler_actor.h"

namespace poseidon {

void SchedulerActor::OnLayerTimes(const Envelope& envelope, Outbox& outbox) {
  wire::LayerTimes times;
  if (envelope.from.node.role != Role::kWorker ||
      !times.ParseFromString(envelope.body.ToString())) {
    return;
  }
  // While a lost worker's is awaited the mean of the others would be taken for one under this plan.
  TellLayerTimes(times_.Add(envelope.from.node.rank, std::move(times), plan_.model().layers_size(),
                            RanksOfWorkers(plan_.plan())),
                 outbox);
}

void SchedulerActor::TellLayerTimes(const std::optional<wire::LayerTimes>& mean, Outbox& outbox) {
  if (mean) outbox.Send(MakeEnvelope(MessageKind::kLayerTimes, Here(kApplicationLane), *mean));
}

void SchedulerActor::OnSwitchPlan(const Envelope& envelope, Outbox& outbox) {
  // Once one worker has finished the others are about to.
  if (phase_ != Phase::kTraining || !answered_.empty() || stop_wanted_) return;
  if (!next_.plan.ParseFromString(envelope.body.ToString())) return;
  // Workers that run apart have no iteration at which all their gradients are in the values.
  if (plan_.plan().staleness() != 0 || next_.plan.plan().staleness() != 0) return;
  // What servers keep would be at worker 0 alone on the way.
  if (KeepsAtServers(plan_.plan())) return;
  // It was made when there were others.
  if (next_.plan.plan().workers() != plan_.plan().workers() ||
      next_.plan.plan().servers() != plan_.plan().servers()) {
    return;
  }
  next_.start = 0;
  next_.members = false;
  WritePause(outbox);
  BroadcastToWorkers(MessageKind::kPauseRequest, 0, outbox);
  EnterPhase(Phase::kAgreeing, outbox);
}

bool SchedulerActor::CountWorker(const Envelope& envelope) {
  return envelope.from.node.role == Role::kWorker && answered_.insert(envelope.from.node).second &&
         static_cast<int>(answered_.size()) == Workers();
}

void SchedulerActor::OnPauseOffer(const Envelope& envelope, Outbox& outbox) {
  if (!IsIteration(envelope.iteration)) return;
  if (phase_ != Phase::kAgreeing) return AnswerOfferAgain(envelope.from.node, outbox);
  next_.start = std::max(next_.start, envelope.iteration);
  if (!CountWorker(envelope)) return;
  // A stop that was asked for meanwhile needs no other plan any more.
  if (stop_wanted_) return StopAt(next_.start, outbox);
  BroadcastToWorkers(MessageKind::kPauseAt, next_.start, outbox);
  EnterPhase(Phase::kPausing, outbox);
}

void SchedulerActor::AnswerOfferAgain(const NodeId& worker, Outbox& outbox) {
  if (worker.role != Role::kWorker) return;
  if (phase_ == Phase::kTraining && stop_at_) return SendStop(worker, outbox);
  if (phase_ != Phase::kPausing) return;
  Envelope pause = ToNode(MessageKind::kPauseAt, worker, {});
  pause.iteration = next_.start;
  outbox.Send(std::move(pause));
}

void SchedulerActor::OnPaused(const Envelope& envelope, Outbox& outbox) {
  if (phase_ != Phase::kPausing || envelope.step != PlanNumber()) return;
  if (!CountWorker(envelope)) return;
  if (next_.members) return ChangeMembers(outbox);
  if (next_.start > plan_.plan().start_iteration()) ForgetEarlierLosses();
  next_.plan.mutable_plan()->set_number(plan_.plan().number() + 1);
  next_.plan.mutable_plan()->set_start_iteration(next_.start);
  next_.plan.mutable_plan()->set_layout(next_.plan.plan().number());
  next_.plan.mutable_plan()->clear_holders();
  *next_.plan.mutable_plan()->mutable_worker_ranks() = plan_.plan().worker_ranks();
  *next_.plan.mutable_plan()->mutable_server_ranks() = plan_.plan().server_ranks();
  *next_.plan.mutable_plan()->mutable_tenures() = plan_.plan().tenures();
  if (Recovers()) {
    // Under recovery the workers make the updates, so each has all that the next plan starts with.
    for (int place = 0; place < plan_.plan().workers(); ++place) {
      next_.plan.mutable_plan()->add_holders(place);
    }
  }
  SendPlan(next_.plan, outbox);
}

}  // namespace poseidon
