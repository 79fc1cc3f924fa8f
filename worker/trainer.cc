#include "worker/trainer.h"

#include <glog/logging.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>

#include "core/error.h"

namespace poseidon {
namespace {

Time Now() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

Trainer::Trainer(Engine& engine, Session& session, const ModelSpec& model,
                 const TrainerOptions& options)
    : engine_(engine),
      session_(session),
      model_(model),
      options_(options),
      snapshots_(options.snapshots),
      first_iteration_(session.iteration()) {
  BindParameters();
  SetFirstValues();
  if (model_.update_rule().deferred()) {
    deferred_.emplace(model_, options_.deferred);
    updated_.assign(model_.layers_size(), first_iteration_);
  }
  if (!session_.wants_layer_times()) return;
  std::vector<std::optional<int>> layers;
  for (int step = 0; step < engine_.steps(); ++step) {
    layers.push_back(engine_.layer_of_step(step));
  }
  timer_.emplace(layers);
}

void Trainer::BindParameters() {
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
    engine_.BindParameters(layer, session_.values(layer));
  }
}

void Trainer::SetFirstValues() {
  const bool leads = session_.rank() == 0;
  if (leads) engine_.FillParameters();
  // What the model lacks never changes and is not sent, so every worker reads it for itself.
  if (engine_.net() == nullptr || (!leads && !HasParametersBesideModel())) return;
  CheckSameStart();
  NetValues values = engine_.Values();
  for (const std::string& path : options_.weights) {
    ReadCaffemodel(path, *engine_.net(), values);
    if (leads) LOG(INFO) << "starting from the values of " << path;
  }
  if (options_.from) ReadCaffemodel(options_.from->model, *engine_.net(), values);
  engine_.SetValues(values);
  if (leads && options_.from) RestoreState();
}

bool Trainer::HasParametersBesideModel() const {
  int64_t parameters = 0;
  for (const LayerDescription& layer : engine_.net()->layers) parameters += layer.owned_floats();
  return parameters != ParameterCount(model_);
}

void Trainer::CheckSameStart() const {
  const int64_t own = options_.from ? options_.from->state.iteration : 0;
  if (own == first_iteration_) return;
  throw DataError("worker " + std::to_string(session_.rank()) +
                  " needs the snapshot of iteration " + std::to_string(first_iteration_) +
                  ", from which worker 0 goes on, for the layers that are not trained, but found " +
                  (options_.from ? options_.from->path : "none") +
                  "; put the files on every worker's machine");
}

void Trainer::RestoreState() {
  session_.RestoreState(
      FromHistory(options_.from->path, *engine_.net(), model_, options_.from->state.history));
  LOG(INFO) << "going on from iteration " << options_.from->state.iteration << ", "
            << options_.from->path;
}

wire::WorkerReport Trainer::Train() {
  session_.Begin();
  const Time begin = Now();
  while (session_.iteration() < options_.max_iter) RunIteration();
  WaitForAllLayers();

  wire::WorkerReport report;
  report.set_training_seconds(ToSeconds(Now() - begin - testing_));
  report.set_iterations(session_.iteration() - first_iteration_);
  report.set_images((options_.passes.PassesBefore(session_.iteration()) -
                     options_.passes.PassesBefore(first_iteration_)) *
                    engine_.batch());
  report.set_parameter_hash(ParameterHash());
  if (session_.rank() == 0) {
    if (session_.iteration() > first_iteration_ && snapshots_.IsDueAtEnd(session_.iteration())) {
      WriteSnapshot();
    }
    Test();
    if (last_test_.accuracy) report.set_test_accuracy(*last_test_.accuracy);
    if (last_test_.loss) report.set_test_loss(*last_test_.loss);
  }
  return report;
}

void Trainer::RunIteration() {
  const int64_t iteration = session_.iteration();
  const bool first = iteration == first_iteration_;
  if (session_.rank() == 0 && !first && snapshots_.IsDue(iteration)) {
    WaitForAllLayers();
    WriteSnapshot();
  }
  if (session_.rank() == 0 && options_.test_interval > 0 &&
      iteration % options_.test_interval == 0 && (!first || options_.test_initialization)) {
    WaitForAllLayers();
    Test();
  }
  const int64_t passes = options_.passes.PassesOf(iteration);
  float loss = 0;
  for (int64_t pass = 0; pass < passes; ++pass) {
    RunPass(pass, passes);
    loss += engine_.loss() / static_cast<float>(passes);
  }
  Display(loss);
  wire::Progress progress;
  progress.set_loss(loss);
  progress.set_images(passes * engine_.batch());
  progress.set_total_iterations(options_.max_iter);
  if (timer_) {
    if (const std::optional<wire::LayerTimes> times = timer_->EndIteration()) {
      session_.ReportLayerTimes(*times);
      timer_.reset();
    }
  }
  if (session_.EndIteration(std::move(progress))) BindParameters();
}

void Trainer::RunPass(int64_t pass, int64_t passes) {
  const Time begin = Now();
  engine_.LoadBatch(options_.passes.PassesBefore(session_.iteration()) + pass);
  // The first layer can't start earlier.
  if (timer_) timer_->AddForward(0, Now() - begin);
  Forward();
  CheckLoss(engine_.loss());
  Backward(pass, passes);
}

void Trainer::CheckLoss(float loss) const {
  if (std::isfinite(loss)) return;
  const std::string layer = engine_.FirstNotFinite();
  throw Error(ExitCode::kFailure,
              "the loss of worker " + std::to_string(session_.rank()) + " is " +
                  std::to_string(loss) + " in iteration " + std::to_string(session_.iteration()) +
                  (layer.empty() ? "" : "; the first layer with such numbers is " + layer) +
                  "; a smaller base_lr usually helps");
}

void Trainer::Display(float loss) {
  if (session_.rank() != 0 || options_.display <= 0) return;
  recent_losses_.push_back(loss);
  if (static_cast<int64_t>(recent_losses_.size()) > options_.average_loss) {
    recent_losses_.pop_front();
  }
  if (session_.iteration() % options_.display != 0) return;
  const double sum = std::accumulate(recent_losses_.begin(), recent_losses_.end(), 0.0);
  LOG(INFO) << "Iteration " << session_.iteration()
            << ", loss = " << sum / static_cast<double>(recent_losses_.size());
}

void Trainer::Forward() {
  for (int step = 0; step < engine_.steps(); ++step) {
    if (const auto layer = engine_.layer_of_step(step)) WaitFresh(*layer);
    const Time begin = Now();
    engine_.Forward(step);
    if (timer_) timer_->AddForward(step, Now() - begin);
    Trace("forward", step, begin);
  }
}

void Trainer::Backward(int64_t pass, int64_t passes) {
  for (int step = engine_.steps() - 1; step >= 0; --step) {
    const auto layer = engine_.layer_of_step(step);
    GradientTarget target;
    if (layer) target = TargetOf(*layer, pass);
    const Time begin = Now();
    engine_.Backward(step, target);
    if (layer) AddPass(*layer, pass, passes);
    if (timer_) timer_->AddBackward(step, Now() - begin);
    Trace("backward", step, begin);
    if (layer && pass + 1 == passes) session_.GradientReady(*layer);
  }
}

GradientTarget Trainer::TargetOf(int layer, int64_t pass) {
  const GradientBuffers buffers = session_.gradient(layer);
  if (buffers.dense.empty()) {
    // The factors of all passes, one below the other: their product is the passes' sum.
    const auto rows = static_cast<size_t>(options_.passes.most());
    const size_t u = buffers.u.size() / rows;
    const size_t v = buffers.v.size() / rows;
    return {{}, buffers.u.subspan(pass * u, u), buffers.v.subspan(pass * v, v)};
  }
  if (pass == 0) return {buffers.dense, {}, {}};
  pass_gradient_.resize(std::max(pass_gradient_.size(), buffers.dense.size()));
  return {std::span(pass_gradient_).first(buffers.dense.size()), {}, {}};
}

void Trainer::AddPass(int layer, int64_t pass, int64_t passes) {
  if (options_.passes.most() == 1) return;
  const GradientBuffers buffers = session_.gradient(layer);
  const bool last = pass + 1 == passes;
  const float scale = 1.0F / static_cast<float>(passes);
  const auto multiply = [](std::span<float> values, float factor) {
    for (float& value : values) value *= factor;
  };
  if (buffers.dense.empty()) {
    if (!last) return;
    const size_t used = buffers.u.size() / options_.passes.most() * passes;
    multiply(buffers.u.first(used), scale);
    std::fill(buffers.u.begin() + static_cast<int64_t>(used), buffers.u.end(), 0.0F);
    return;
  }
  for (size_t i = 0; pass > 0 && i < buffers.dense.size(); ++i) {
    buffers.dense[i] += pass_gradient_[i];
  }
  if (last) multiply(buffers.dense, scale);
}

void Trainer::BeginDeferred() {
  const int64_t iteration = session_.iteration();
  if (deferred_begun_ == iteration) return;
  deferred_begun_ = iteration;
  if (deferred_->needs_all_layers()) {
    for (int layer = 0; layer < model_.layers_size(); ++layer) session_.WaitFresh(layer);
  }
  deferred_->Begin(options_.passes.PassesOf(iteration - 1),
                   [this](int layer) { return std::span<const float>(session_.state(layer)); });
}

void Trainer::WaitFresh(int layer) {
  session_.WaitFresh(layer);
  const int64_t iteration = session_.iteration();
  if (!deferred_ || updated_[layer] == iteration) return;
  BeginDeferred();
  deferred_->Apply(layer, iteration - 1, session_.values(layer), session_.state(layer));
  updated_[layer] = iteration;
}

void Trainer::WriteSnapshot() {
  const Time begin = Now();
  snapshots_.Write(engine_, model_, session_.iteration(), session_.CollectState());
  testing_ += Now() - begin;
}

void Trainer::WaitForAllLayers() {
  for (int layer = 0; layer < model_.layers_size(); ++layer) WaitFresh(layer);
}

void Trainer::Test() {
  const Time begin = Now();
  last_test_ = engine_.Test();
  testing_ += Now() - begin;
  for (const TestOutput& output : last_test_.outputs) {
    for (const float value : output.values) {
      LOG(INFO) << "Iteration " << session_.iteration() << ", test net " << output.net << ": "
                << output.blob << " = " << value;
    }
  }
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
  for (int layer = 0; layer < model_.layers_size(); ++layer) {
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
