// SchedulerActor: how long the layers compute, and going over to another plan.
#include <algorithm>
#include <cmath>

#include "scheduler/scheduler_actor.h"

namespace poseidon {
namespace {

bool AreTimes(const google::protobuf::RepeatedField<double>& milliseconds, int layers) {
  return milliseconds.size() == layers &&
         std::all_of(milliseconds.begin(), milliseconds.end(),
                     [](double time) { return std::isfinite(time) && time >= 0; });
}

}  // namespace

void SchedulerActor::OnLayerTimes(const Envelope& envelope, Outbox& outbox) {
  wire::LayerTimes times;
  const int layers = plan_.model().layers_size();
  if (envelope.from.node.role != Role::kWorker ||
      !times.ParseFromString(envelope.body.ToString()) || !AreTimes(times.forward_ms(), layers) ||
      !AreTimes(times.backward_ms(), layers)) {
    return;
  }
  const int workers = options_.job.cluster().workers();
  if (!times_.emplace(envelope.from.node, std::move(times)).second ||
      static_cast<int>(times_.size()) < workers) {
    return;
  }
  wire::LayerTimes mean;
  for (int layer = 0; layer < layers; ++layer) {
    double forward = 0;
    double backward = 0;
    for (const auto& [worker, measured] : times_) {
      forward += measured.forward_ms(layer);
      backward += measured.backward_ms(layer);
    }
    mean.add_forward_ms(forward / workers);
    mean.add_backward_ms(backward / workers);
  }
  outbox.Send(MakeEnvelope(MessageKind::kLayerTimes, Here(kApplicationLane), mean));
}

void SchedulerActor::OnSwitchPlan(const Envelope& envelope, Outbox& outbox) {
  // Once one worker has finished the others are about to.
  if (phase_ != Phase::kTraining || !answered_.empty()) return;
  if (!next_plan_.ParseFromString(envelope.body.ToString())) return;
  // Workers that run apart have no iteration at which all their gradients are in the values.
  if (plan_.plan().staleness() != 0 || next_plan_.plan().staleness() != 0) return;
  next_start_ = 0;
  BroadcastToWorkers(MessageKind::kPauseRequest, 0, outbox);
  EnterPhase(Phase::kAgreeing, outbox);
}

bool SchedulerActor::CountWorker(const Envelope& envelope) {
  return envelope.from.node.role == Role::kWorker && answered_.insert(envelope.from.node).second &&
         static_cast<int>(answered_.size()) == options_.job.cluster().workers();
}

void SchedulerActor::OnPauseOffer(const Envelope& envelope, Outbox& outbox) {
  if (phase_ != Phase::kAgreeing) return;
  next_start_ = std::max(next_start_, envelope.iteration);
  if (!CountWorker(envelope)) return;
  BroadcastToWorkers(MessageKind::kPauseAt, next_start_, outbox);
  EnterPhase(Phase::kPausing, outbox);
}

void SchedulerActor::OnPaused(const Envelope& envelope, Outbox& outbox) {
  if (phase_ != Phase::kPausing || envelope.step != PlanNumber()) return;
  if (!CountWorker(envelope)) return;
  next_plan_.mutable_plan()->set_number(plan_.plan().number() + 1);
  next_plan_.mutable_plan()->set_start_iteration(next_start_);
  SendPlan(next_plan_, outbox);
}

}  // namespace poseidon
