#include "worker/trainer.h"

#include <glog/logging.h>
#include <xxhash.h>

#include <cmath>
#include <cstdio>
#include <memory>

#include "core/error.h"

namespace poseidon {
namespace {

Time Now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

Trainer::Trainer(Engine& engine, Session& session, const TrainerOptions& options)
    : engine_(engine), session_(session), options_(options) {
  BindParameters();
  if (session_.rank() == 0) engine_.FillParameters();
  if (!session_.wants_layer_times()) return;
  std::vector<std::optional<int>> layers;
  for (int step = 0; step < engine_.steps(); ++step) {
    layers.push_back(engine_.layer_of_step(step));
  }
  timer_.emplace(layers);
}

void Trainer::BindParameters() {
  for (int layer = 0; layer < engine_.model().layers_size(); ++layer) {
    engine_.BindParameters(layer, session_.values(layer));
  }
}

wire::WorkerReport Trainer::Train() {
  session_.Begin();
  const Time begin = Now();
  while (session_.iteration() < options_.max_iter) RunIteration();
  WaitForAllLayers();

  wire::WorkerReport report;
  report.set_training_seconds(ToSeconds(Now() - begin - testing_));
  report.set_iterations(options_.max_iter);
  report.set_images(options_.max_iter * engine_.batch());
  report.set_parameter_hash(ParameterHash());
  if (session_.rank() == 0) {
    Test();
    if (last_test_.accuracy) report.set_test_accuracy(*last_test_.accuracy);
    if (last_test_.loss) report.set_test_loss(*last_test_.loss);
  }
  return report;
}

void Trainer::RunIteration() {
  const int64_t iteration = session_.iteration();
  if (session_.rank() == 0 && options_.test_interval > 0 &&
      iteration % options_.test_interval == 0 && (iteration > 0 || options_.test_initialization)) {
    WaitForAllLayers();
    Test();
  }
  const Time begin = Now();
  engine_.LoadBatch(iteration);
  // The first layer can't start earlier.
  if (timer_) timer_->AddForward(0, Now() - begin);
  Forward();
  const float loss = engine_.loss();
  if (!std::isfinite(loss)) {
    throw Error(ExitCode::kFailure, "the loss of worker " + std::to_string(session_.rank()) +
                                        " is " + std::to_string(loss) + " in iteration " +
                                        std::to_string(iteration) +
                                        "; a smaller base_lr usually helps");
  }
  if (session_.rank() == 0 && options_.display > 0 && iteration % options_.display == 0) {
    LOG(INFO) << "Iteration " << iteration << ", loss = " << loss;
  }
  Backward();
  wire::Progress progress;
  progress.set_loss(loss);
  progress.set_images(engine_.batch());
  progress.set_total_iterations(options_.max_iter);
  if (timer_) {
    if (const std::optional<wire::LayerTimes> times = timer_->EndIteration()) {
      session_.ReportLayerTimes(*times);
      timer_.reset();
    }
  }
  if (session_.EndIteration(std::move(progress))) BindParameters();
}

void Trainer::Forward() {
  for (int step = 0; step < engine_.steps(); ++step) {
    if (const auto layer = engine_.layer_of_step(step)) session_.WaitFresh(*layer);
    const Time begin = Now();
    engine_.Forward(step);
    if (timer_) timer_->AddForward(step, Now() - begin);
    Trace("forward", step, begin);
  }
}

void Trainer::Backward() {
  for (int step = engine_.steps() - 1; step >= 0; --step) {
    const auto layer = engine_.layer_of_step(step);
    GradientTarget target;
    if (layer) {
      const GradientBuffers buffers = session_.gradient(*layer);
      target = {buffers.dense, buffers.u, buffers.v};
    }
    const Time begin = Now();
    engine_.Backward(step, target);
    if (timer_) timer_->AddBackward(step, Now() - begin);
    Trace("backward", step, begin);
    if (layer) session_.GradientReady(*layer);
  }
}

void Trainer::WaitForAllLayers() {
  for (int layer = 0; layer < engine_.model().layers_size(); ++layer) session_.WaitFresh(layer);
}

void Trainer::Test() {
  const Time begin = Now();
  last_test_ = engine_.Test();
  testing_ += Now() - begin;
  if (!last_test_.accuracy && !last_test_.loss) return;
  wire::Progress progress;
  progress.set_iteration(session_.iteration());
  progress.set_total_iterations(options_.max_iter);
  if (last_test_.accuracy) progress.set_test_accuracy(*last_test_.accuracy);
  if (last_test_.loss) progress.set_test_loss(*last_test_.loss);
  session_.ReportTest(progress);
}

std::string Trainer::ParameterHash() const {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(),
                                                                       &XXH3_freeState);
  XXH3_128bits_reset(state.get());
  for (int layer = 0; layer < engine_.model().layers_size(); ++layer) {
    const std::span<const float> values = session_.values(layer);
    XXH3_128bits_update(state.get(), values.data(), values.size_bytes());
  }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

void Trainer::Trace(const char* name, int step, Time begin) {
  if (session_.trace() == nullptr) return;
  session_.trace()->Add(
      {name, engine_.step_name(step), "compute", session_.iteration(), begin, Now()});
}

}  // namespace poseidon
