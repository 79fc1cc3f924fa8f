#include "simulation/simulated_trainer.h"

#include <glog/logging.h>

#include <cmath>

#include "planner/cost/device_copy_cost.h"

namespace poseidon {
namespace {

constexpr TimerId kStepDone = 1;
constexpr TimerId kAtHost = 2;
constexpr TimerId kAtDevices = 3;
constexpr Address kScheduler{{Role::kScheduler, 0}, kControlLane};

}  // namespace

SimulatedTrainer::SimulatedTrainer(ProgramFrame frame, std::shared_ptr<WorkerState> state,
                                   const Options& options)
    : frame_(std::move(frame)),
      state_(std::move(state)),
      options_(options),
      to_host_(kAtHost),
      to_devices_(kAtDevices) {
  if (!options_.measure) return;
  std::vector<std::optional<int>> layers;
  for (const ComputeStep& step : options_.work->timeline.steps) layers.push_back(step.layer);
  timer_.emplace(layers);
}

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
    case MessageKind::kBucketFresh: {
      const Copied part{static_cast<int>(envelope.bucket), envelope.iteration, envelope.happened};
      const int lane = envelope.from.lane - kFirstDataLane;
      if (to_devices_.Pass(part, to_devices_time_[part.index][lane], outbox)) OnFresh(part, outbox);
      return;
    }
    case MessageKind::kPauseRequest:
      return OnPauseRequest(outbox);
    case MessageKind::kPauseAt:
      pause_.Agree(envelope.iteration);
      if (phase_ == Phase::kAgreeing) BeginIteration(outbox);
      return;
    case MessageKind::kOptimizerState:
      transition_.Receive(envelope);
      return TryLeave(outbox);
    default:
      return frame_.OnMessage(envelope, outbox);
  }
}

void SimulatedTrainer::OnPlan(Outbox& outbox) {
  progress_ = std::make_unique<BucketProgress>(context().plan.plan());
  PlanCopies();
  if (context().plan.plan().number() > 0) {
    transition_.LoadInto(state_->context);
  } else if (context().rank == 0 && options_.work->arithmetic.initialize) {
    for (int layer = 0; layer < options_.model->layers_size(); ++layer) {
      options_.work->arithmetic.initialize(layer, context().memory->values(layer));
    }
  }
  Envelope ready;
  ready.kind = MessageKind::kLocalReady;
  ready.to = Here(kControlLane);
  outbox.Send(std::move(ready));
}

void SimulatedTrainer::PlanCopies() {
  const ModelSpec& model = *options_.model;
  const Plan& plan = context().plan.plan();
  to_host_time_.clear();
  to_devices_time_.assign(plan.buckets_size(), std::vector<Duration>(plan.lanes()));
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const BucketPlan& bucket = plan.buckets(b);
    for (int l = 0; l < bucket.layer_count(); ++l) {
      const LayerSpec& layer = model.layers(bucket.first_layer() + l);
      to_host_time_.push_back(Seconds(SecondsToHost(bucket, layer, options_.cluster)));
    }
    std::vector<int64_t> floats(plan.lanes());
    for (const Chunk& chunk : bucket.chunks()) floats[chunk.lane()] += chunk.size();
    for (int lane = 0; lane < plan.lanes(); ++lane) {
      to_devices_time_[b][lane] =
          Seconds(SecondsToDevices(bucket, floats[lane], model, options_.cluster));
    }
  }
}

void SimulatedTrainer::OnStartOfTraining(Outbox& outbox) {
  if (phase_ != Phase::kPreparing) return;
  if (context().rank == 0) {
    for (int bucket = 0; bucket < context().plan.plan().buckets_size(); ++bucket) {
      PostToLanes(MessageKind::kPublishInitial, bucket, iteration_,
                  transition_.optimizer_state(bucket), outbox);
    }
  }
  transition_.Release();
  StartForward(outbox);
}

void SimulatedTrainer::OnPauseRequest(Outbox& outbox) {
  if (phase_ == Phase::kFinished) return;
  Envelope offer;
  offer.kind = MessageKind::kPauseOffer;
  offer.to = kScheduler;
  offer.iteration = pause_.Offer(iteration_);
  SendToScheduler(std::move(offer), outbox);
}

void SimulatedTrainer::BeginIteration(Outbox& outbox) {
  if (pause_.MustWait(iteration_)) {
    phase_ = Phase::kAgreeing;
    return;
  }
  if (pause_.MustPause(iteration_)) {
    phase_ = Phase::kPausing;
    return TryPause(outbox);
  }
  StartForward(outbox);
}

void SimulatedTrainer::StartForward(Outbox& outbox) {
  since_ = outbox.now;
  phase_ = Phase::kForward;
  options_.record->iterations.push_back({outbox.now, {}, {}});
  TryStep(outbox);
}

bool SimulatedTrainer::AllFresh() const {
  for (int layer = 0; layer < options_.model->layers_size(); ++layer) {
    if (!progress_->IsFresh(layer, iteration_)) return false;
  }
  return true;
}

void SimulatedTrainer::TryPause(Outbox& outbox) {
  if (!AllFresh()) return;
  AddTraffic(context(), past_plans_);
  progress_->AddTimes(past_plans_);
  transition_.SaveFrom(state_->context);
  for (const int bucket : transition_.BucketsToFetch()) {
    PostToLanes(MessageKind::kCollectOptimizerState, bucket, iteration_, {}, outbox);
  }
  phase_ = Phase::kLeaving;
  TryLeave(outbox);
}

void SimulatedTrainer::TryLeave(Outbox& outbox) {
  if (phase_ != Phase::kLeaving || !transition_.complete()) return;
  phase_ = Phase::kPreparing;
  Envelope paused;
  paused.kind = MessageKind::kPaused;
  paused.step = static_cast<uint32_t>(state_->context->plan.plan().number());
  paused.to = kScheduler;
  SendToScheduler(std::move(paused), outbox);
}

void SimulatedTrainer::TryStep(Outbox& outbox) {
  if (phase_ == Phase::kForward && step().layer && !progress_->IsFresh(*step().layer, iteration_)) {
    waiting_ = true;
    return;
  }
  if (waiting_) {
    waiting_ = false;
    times().exposed += outbox.now - since_;
    AddTrace("wait", since_, outbox.now);
  }
  since_ = outbox.now;
  outbox.SetTimer(kStepDone, ComputeTime());
}

Duration SimulatedTrainer::ComputeTime() const {
  const Duration time = phase_ == Phase::kForward ? step().forward : step().backward;
  if (options_.compute_factor == 1) return time;
  return Duration(std::llround(static_cast<double>(time.count()) * options_.compute_factor));
}

void SimulatedTrainer::OnTimer(TimerId timer, Outbox& outbox) {
  if (frame_.ended()) return;
  if (timer == kAtHost) return OnGradientAtHost(to_host_.Next(outbox), outbox);
  if (timer == kAtDevices) {
    Copied part = to_devices_.Next(outbox);
    part.happened = outbox.now;
    return OnFresh(part, outbox);
  }
  if (phase_ == Phase::kForward) {
    FinishForward(outbox);
  } else {
    FinishBackward(outbox);
  }
}

void SimulatedTrainer::FinishForward(Outbox& outbox) {
  AddTrace("forward", since_, outbox.now);
  if (timer_) timer_->AddForward(static_cast<int>(step_), outbox.now - since_);
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
  if (timer_) timer_->AddBackward(static_cast<int>(step_), outbox.now - since_);
  since_ = outbox.now;
  if (const std::optional<int> layer = step().layer) {
    if (options_.work->arithmetic.gradient) {
      options_.work->arithmetic.gradient(context().rank, iteration_, *layer,
                                         context().memory->values(*layer),
                                         GradientBuffersOf(context(), *layer, iteration_));
    }
    transition_.AddResidual(*layer, GradientBuffersOf(context(), *layer, iteration_).dense);
    const Copied gradient{*layer, iteration_, outbox.now};
    if (to_host_.Pass(gradient, to_host_time_[*layer], outbox)) OnGradientAtHost(gradient, outbox);
  }
  if (step_ == 0) return FinishIteration(outbox);
  --step_;
  TryStep(outbox);
}

void SimulatedTrainer::OnGradientAtHost(const Copied& layer, Outbox& outbox) {
  for (const int bucket : progress_->LayerReady(layer.index, layer.happened)) {
    PostToLanes(MessageKind::kGradientReady, bucket, layer.iteration, {}, outbox);
  }
}

void SimulatedTrainer::OnFresh(const Copied& bucket, Outbox& outbox) {
  progress_->Report(bucket.index, bucket.iteration, bucket.happened);
  if (phase_ == Phase::kFinishing) return TryFinish(outbox);
  if (phase_ == Phase::kPausing) return TryPause(outbox);
  if (waiting_) TryStep(outbox);
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
  ReportLayerTimes(outbox);
  ++iteration_;
  if (iteration_ == options_.work->iterations) {
    phase_ = Phase::kFinishing;
    return TryFinish(outbox);
  }
  BeginIteration(outbox);
}

void SimulatedTrainer::ReportLayerTimes(Outbox& outbox) {
  if (!timer_) return;
  if (const std::optional<wire::LayerTimes> times = timer_->EndIteration()) {
    SendToScheduler(MakeEnvelope(MessageKind::kLayerTimes, kScheduler, *times), outbox);
    timer_.reset();
  }
}

void SimulatedTrainer::TryFinish(Outbox& outbox) {
  if (!AllFresh()) return;
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
  AddTraffic(context(), past_plans_);
  progress_->AddTimes(past_plans_);
  *report.mutable_buckets() = past_plans_.buckets();
  report.set_dropped_frames(past_plans_.dropped_frames());
  SendToScheduler(MakeEnvelope(MessageKind::kFinished, kScheduler, report), outbox);
}

void SimulatedTrainer::PostToLanes(MessageKind kind, int bucket, int64_t iteration,
                                   const Payload& body, Outbox& outbox) const {
  for (int lane = 0; lane < context().plan.plan().lanes(); ++lane) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = Here(kFirstDataLane + lane);
    envelope.epoch = context().epoch;
    envelope.iteration = iteration;
    envelope.bucket = static_cast<uint32_t>(bucket);
    envelope.body = body;
    outbox.Send(std::move(envelope));
  }
}

void SimulatedTrainer::SendToScheduler(Envelope envelope, Outbox& outbox) const {
  envelope.epoch = frame_.record().epoch;
  outbox.Send(std::move(envelope));
}

void SimulatedTrainer::AddTrace(const char* name, Time begin, Time end) {
  if (options_.trace == nullptr) return;
  const std::string layer =
      step().layer ? options_.model->layers(*step().layer).name() : "step " + std::to_string(step_);
  options_.trace->Add({name, layer, "compute", iteration_, begin, end});
}

}  // namespace poseidon
