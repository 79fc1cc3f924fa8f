#include "simulation/simulated_trainer.h"

#include <algorithm>

#include "client/sync/gradient_buffers.h"

namespace poseidon {
namespace {

using Phase = WorkerProtocol::Phase;

constexpr TimerId kStepDone = 1;
constexpr TimerId kOnHost = 2;
constexpr TimerId kOnDevices = 3;
constexpr Address kScheduler{{Role::kScheduler, 0}, kControlLane};

// The worker's samples an iteration under its plan, whose parts are of one pass.
int64_t PartOf(const SyncContext& context, const ModelSpec& model) {
  const Plan& plan = context.plan.plan();
  if (plan.parts().empty()) return model.batch();
  return plan.parts(context.place) * std::max<int64_t>(1, model.passes());
}

}  // namespace

SimulatedTrainer::SimulatedTrainer(ProgramFrame frame, std::shared_ptr<PlanHandover> plans,
                                   const Options& options)
    : frame_(std::move(frame)),
      options_(options),
      protocol_(std::move(plans)),
      walk_({.timeline = &options.work->timeline,
             .model = options.model,
             .communication = options.communication,
             .compute_factor = options.compute_factor,
             .disturbance = options.disturbance,
             .measure = options.measure,
             .trace = options.trace,
             .iterations = &options.record->iterations}),
      copies_(kOnHost, kOnDevices) {}

void SimulatedTrainer::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (frame_.ended()) return;
  if (envelope.kind == MessageKind::kBucketFresh) {
    if (envelope.epoch != protocol_.context().epoch) return;
    const DeviceCopies::Part part{static_cast<int>(envelope.bucket), envelope.iteration,
                                  envelope.happened};
    const int lane = envelope.from.lane - kFirstDataLane;
    if (copies_.ToDevices(part, lane, outbox)) OnFresh(part, outbox);
    return;
  }
  if (envelope.kind == MessageKind::kLeave) return protocol_.Leave(outbox);
  frame_.OnMessage(envelope, outbox);
  if (frame_.ended()) return;
  try {
    protocol_.Receive(envelope, outbox);
    if (protocol_.phase() == Phase::kHeld) Abandon(outbox);
    Proceed(outbox);
  } catch (const Error& error) {
    frame_.Fail(error, outbox);
  }
}

void SimulatedTrainer::Abandon(Outbox& outbox) {
  walk_.Abandon();
  copies_.Abandon(outbox);
  outbox.CancelTimer(kStepDone);
}

void SimulatedTrainer::OnTimer(TimerId timer, Outbox& outbox) {
  if (frame_.ended()) return;
  if (timer == kStepDone) return OnStepDone(outbox);
  if (timer == kOnHost) {
    const DeviceCopies::Part gradient = copies_.NextOnHost(outbox);
    return protocol_.GradientReady(gradient.index, gradient.iteration, gradient.happened, outbox);
  }
  DeviceCopies::Part bucket = copies_.NextOnDevices(outbox);
  bucket.happened = outbox.now;
  OnFresh(bucket, outbox);
}

void SimulatedTrainer::OnFresh(const DeviceCopies::Part& bucket, Outbox& outbox) {
  protocol_.BucketFresh(bucket.index, bucket.iteration, bucket.happened);
  Proceed(outbox);
}

void SimulatedTrainer::Proceed(Outbox& outbox) {
  if (walk_.waiting()) return TryStep(outbox);
  if (walk_.computing()) return;
  switch (protocol_.phase()) {
    case Phase::kDeclaring:
      return protocol_.Declare(*options_.model, options_.inputs, outbox);
    case Phase::kPreparing:
      return OnPlan(outbox);
    case Phase::kTraining:
      if (protocol_.iteration() >= options_.work->iterations || protocol_.stops()) {
        if (AllReady()) Finish(outbox);
        return;
      }
      walk_.Begin(protocol_.rank(), protocol_.iteration(), outbox.now);
      return TryStep(outbox);
    case Phase::kPausing:
      if (AllReady()) protocol_.LeavePlan(outbox);
      return;
    default:
      return;
  }
}

void SimulatedTrainer::OnPlan(Outbox& outbox) {
  options_.record->context = protocol_.shared_context();
  if (deferred_) deferred_->PlanChanged();
  if (!deferred_ && options_.model->update_rule().deferred()) {
    deferred_.emplace(protocol_, *options_.model, options_.work->deferred,
                      [](int64_t) { return int64_t{1}; });
  }
  images_ = PartOf(protocol_.context(), *options_.model);
  walk_.SetPart(options_.model->batch() > 0
                    ? static_cast<double>(images_) / static_cast<double>(options_.model->batch())
                    : 1);
  copies_.SetPlan(protocol_.plan(), *options_.model, options_.cluster);
  const bool first = protocol_.plan().start_iteration() == 0 && protocol_.plan().holders().empty();
  // Before its first plan's start only, as programs do.
  if (!std::exchange(planned_, true) && first && protocol_.leads() &&
      options_.work->arithmetic.initialize) {
    for (int layer = 0; layer < options_.model->layers_size(); ++layer) {
      options_.work->arithmetic.initialize(layer, protocol_.context().memory->values(layer));
    }
  }
  protocol_.TookStatistics();  // its net has none
  protocol_.Begin(outbox);
}

bool SimulatedTrainer::IsReady(int layer, int64_t iteration) {
  return protocol_.IsFresh(layer, iteration) && (!deferred_ || deferred_->Update(layer));
}

bool SimulatedTrainer::AllReady() {
  bool all = true;
  for (int layer = 0; layer < options_.model->layers_size(); ++layer) {
    all = IsReady(layer, protocol_.iteration()) && all;
  }
  return all;
}

void SimulatedTrainer::TryStep(Outbox& outbox) {
  for (const ComputeMove::Awaited& awaited : walk_.awaited()) {
    const int64_t iteration = protocol_.iteration() + (awaited.next_iteration ? 1 : 0);
    if (!IsReady(awaited.layer, iteration)) return walk_.Wait();
  }
  outbox.SetTimer(kStepDone, walk_.Start(outbox.now));
}

void SimulatedTrainer::OnStepDone(Outbox& outbox) {
  const ComputeWalk::Done done = walk_.Finish(outbox.now);
  const int64_t iteration = protocol_.iteration();
  const SyncContext& context = protocol_.context();
  for (const int layer : done.gradients) {
    if (options_.work->arithmetic.gradient) {
      options_.work->arithmetic.gradient(context.place, iteration, layer,
                                         context.memory->values(layer),
                                         GradientBuffersOf(context, layer, iteration));
    }
    if (copies_.ToHost({layer, iteration, outbox.now}, outbox)) {
      protocol_.GradientReady(layer, iteration, outbox.now, outbox);
    }
  }
  if (done.iteration) return FinishIteration(outbox);
  TryStep(outbox);
}

void SimulatedTrainer::FinishIteration(Outbox& outbox) {
  const IterationTimes& times = walk_.times();
  wire::Progress progress;
  progress.set_total_iterations(options_.model->iterations());
  progress.set_images(images_);
  progress.set_iteration_seconds(ToSeconds(times.end - times.begin));
  progress.set_exposed_seconds(ToSeconds(times.exposed));
  protocol_.EndIteration(std::move(progress), outbox);
  if (const std::optional<wire::LayerTimes> measured = walk_.Measured()) {
    protocol_.SendToScheduler(MakeEnvelope(MessageKind::kLayerTimes, kScheduler, *measured),
                              outbox);
  }
  Proceed(outbox);
}

void SimulatedTrainer::Finish(Outbox& outbox) {
  options_.record->finished = outbox.now;
  wire::WorkerReport report;
  report.set_iterations(protocol_.iteration());
  report.set_images(protocol_.iteration() * options_.work->model.batch());
  // A process that came at the end has done none itself.
  if (!options_.record->iterations.empty()) {
    report.set_training_seconds(ToSeconds(outbox.now - options_.record->iterations.front().begin));
  }
  Duration exposed{};
  for (const IterationTimes& iteration : options_.record->iterations) {
    exposed += iteration.exposed;
  }
  report.set_exposed_seconds(ToSeconds(exposed));
  protocol_.Finish(std::move(report), outbox);
}

}  // namespace poseidon
