#include "experiments/simulated_trainer.h"

#include <glog/logging.h>

namespace poseidon {
namespace {

constexpr TimerId kStepDone = 1;
constexpr Address kScheduler{{Role::kScheduler, 0}, kControlLane};

}  // namespace

SimulatedTrainer::SimulatedTrainer(ProgramFrame frame, std::shared_ptr<WorkerState> state,
                                   const Options& options)
    : frame_(std::move(frame)), state_(std::move(state)), options_(options) {}

void SimulatedTrainer::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (frame_.ended()) return;
  switch (envelope.kind) {
    case MessageKind::kJoined:
      frame_.OnMessage(envelope, outbox);
      return SendToScheduler(MakeEnvelope(MessageKind::kDeclareModel, kScheduler, *options_.model),
                             outbox);
    case MessageKind::kPlan:
      return OnPlan(outbox);
    case MessageKind::kStart:
      return OnStartOfTraining(outbox);
    case MessageKind::kLayerFresh:
      freshness_->Report(static_cast<int>(envelope.bucket), envelope.iteration);
      if (phase_ == Phase::kFinishing) return TryFinish(outbox);
      if (waiting_) TryStep(outbox);
      return;
    default:
      return frame_.OnMessage(envelope, outbox);
  }
}

void SimulatedTrainer::OnPlan(Outbox& outbox) {
  const Plan& plan = context().plan.plan();
  freshness_ = std::make_unique<Freshness>(plan);
  if (context().rank == 0 && options_.work->arithmetic.initialize) {
    for (int layer = 0; layer < plan.layers_size(); ++layer) {
      options_.work->arithmetic.initialize(layer, context().memory->layer(layer).values);
    }
  }
  Envelope ready;
  ready.kind = MessageKind::kLocalReady;
  ready.to = Here(kControlLane);
  outbox.Send(std::move(ready));
}

void SimulatedTrainer::OnStartOfTraining(Outbox& outbox) {
  if (phase_ != Phase::kPreparing) return;
  if (context().rank == 0) {
    for (int layer = 0; layer < context().plan.plan().layers_size(); ++layer) {
      PostToLanes(MessageKind::kPublishInitial, layer, outbox);
    }
  }
  phase_ = Phase::kForward;
  options_.record->iterations.push_back({outbox.now, {}, {}});
  since_ = outbox.now;
  TryStep(outbox);
}

void SimulatedTrainer::TryStep(Outbox& outbox) {
  const bool forward = phase_ == Phase::kForward;
  if (forward && step().layer && !freshness_->IsFresh(*step().layer, iteration_)) {
    waiting_ = true;
    return;
  }
  if (waiting_) {
    waiting_ = false;
    times().exposed += outbox.now - since_;
    AddTrace("wait", since_, outbox.now);
  }
  since_ = outbox.now;
  outbox.SetTimer(kStepDone, forward ? step().forward : step().backward);
}

void SimulatedTrainer::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  if (frame_.ended()) return;
  if (phase_ == Phase::kForward) {
    FinishForward(outbox);
  } else {
    FinishBackward(outbox);
  }
}

void SimulatedTrainer::FinishForward(Outbox& outbox) {
  AddTrace("forward", since_, outbox.now);
  since_ = outbox.now;
  if (step_ + 1 < options_.work->timeline.steps.size()) {
    ++step_;
  } else {
    phase_ = Phase::kBackward;
  }
  TryStep(outbox);
}

void SimulatedTrainer::FinishBackward(Outbox& outbox) {
  AddTrace("backward", since_, outbox.now);
  since_ = outbox.now;
  if (const std::optional<int> layer = step().layer) {
    if (options_.work->arithmetic.gradient) {
      options_.work->arithmetic.gradient(context().rank, iteration_, *layer,
                                         context().memory->layer(*layer).values,
                                         GradientBuffersOf(context(), *layer, iteration_));
    }
    PostToLanes(MessageKind::kGradientReady, *layer, outbox);
  }
  if (step_ == 0) return FinishIteration(outbox);
  --step_;
  TryStep(outbox);
}

void SimulatedTrainer::FinishIteration(Outbox& outbox) {
  times().end = outbox.now;
  wire::Progress progress;
  progress.set_iteration(iteration_);
  progress.set_total_iterations(options_.work->iterations);
  progress.set_images(options_.work->model.batch());
  progress.set_iteration_seconds(ToSeconds(times().end - times().begin));
  progress.set_exposed_seconds(ToSeconds(times().exposed));
  SendToScheduler(MakeEnvelope(MessageKind::kProgress, kScheduler, progress), outbox);
  ++iteration_;
  if (iteration_ == options_.work->iterations) {
    phase_ = Phase::kFinishing;
    return TryFinish(outbox);
  }
  phase_ = Phase::kForward;
  options_.record->iterations.push_back({outbox.now, {}, {}});
  TryStep(outbox);
}

void SimulatedTrainer::TryFinish(Outbox& outbox) {
  const Plan& plan = context().plan.plan();
  for (int layer = 0; layer < plan.layers_size(); ++layer) {
    if (!freshness_->IsFresh(layer, iteration_)) return;
  }
  phase_ = Phase::kFinished;
  options_.record->finished = outbox.now;
  wire::WorkerReport report;
  report.set_iterations(iteration_);
  report.set_images(iteration_ * options_.work->model.batch());
  report.set_training_seconds(ToSeconds(outbox.now - options_.record->iterations.front().begin));
  Duration exposed{};
  for (const IterationTimes& iteration : options_.record->iterations) {
    exposed += iteration.exposed;
  }
  report.set_exposed_seconds(ToSeconds(exposed));
  AddTraffic(context(), report);
  SendToScheduler(MakeEnvelope(MessageKind::kFinished, kScheduler, report), outbox);
}

void SimulatedTrainer::PostToLanes(MessageKind kind, int layer, Outbox& outbox) const {
  for (int lane = 0; lane < context().plan.plan().lanes(); ++lane) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = Here(kFirstDataLane + lane);
    envelope.epoch = context().epoch;
    envelope.iteration = iteration_;
    envelope.bucket = static_cast<uint32_t>(layer);
    outbox.Send(std::move(envelope));
  }
}

void SimulatedTrainer::SendToScheduler(Envelope envelope, Outbox& outbox) const {
  envelope.epoch = frame_.record().epoch;
  outbox.Send(std::move(envelope));
}

void SimulatedTrainer::AddTrace(const char* name, Time begin, Time end) {
  if (options_.trace == nullptr) return;
  const std::string layer = step().layer ? context().plan.plan().layers(*step().layer).name()
                                         : "step " + std::to_string(step_);
  options_.trace->Add({name, layer, "compute", iteration_, begin, end});
}

}  // namespace poseidon
