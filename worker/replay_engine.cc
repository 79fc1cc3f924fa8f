#include "worker/replay_engine.h"

#include <algorithm>
#include <limits>
#include <set>
#include <thread>

#include "core/error.h"
#include "core/random.h"

namespace poseidon {
namespace {

// Every so many floats (256 KiB) one changes in each iteration, so that each KV pair of the default
// 2 MB has eight that show whether it is of the right iteration.
constexpr size_t kChangeInterval = 65536;

// Gradients and parameters are within +- kMagnitude: thousands of updates stay far from overflow.
constexpr float kMagnitude = 1e-3F;

// Caffe counts a blob's floats in an int.
constexpr int64_t kMaxFloats = std::numeric_limits<int32_t>::max();

// An hour: whoever writes more has mistaken the unit.
constexpr double kMaxMilliseconds = 3.6e6;

float ToValue(uint64_t random) {
  // The upper 24 bits, a float's precision, to [-1, 1).
  return kMagnitude * (static_cast<float>(random >> 40U) * 0x1p-23F - 1);
}

void FillValues(uint64_t seed, std::span<float> values) {
  Random random(seed);
  for (float& value : values) value = ToValue(random.Next());
}

bool IsInnerProduct(const ReplayLayer& layer) { return layer.type() == "InnerProduct"; }

[[noreturn]] void Fail(const ReplayLayer& layer, const std::string& message) {
  throw ConfigError("replay: layer \"" + layer.name() + "\": " + message);
}

void ValidateSizes(const ReplayLayer& layer) {
  if (IsInnerProduct(layer)) {
    if (layer.inputs() < 1) Fail(layer, "an InnerProduct layer needs inputs of at least 1");
    if (layer.outputs() < 1) Fail(layer, "an InnerProduct layer needs outputs of at least 1");
    if (layer.inputs() > kMaxFloats / layer.outputs()) {
      Fail(layer, "inputs x outputs is more than 2^31 - 1 floats");
    }
    if (layer.has_parameters()) {
      Fail(layer,
           "parameters of an InnerProduct layer follow from inputs and outputs; leave it out");
    }
    return;
  }
  if (layer.has_inputs() || layer.has_outputs()) {
    Fail(layer,
         "inputs and outputs are for type \"InnerProduct\" only, this is \"" + layer.type() + "\"");
  }
  if (layer.parameters() < 0 || layer.parameters() > kMaxFloats) {
    Fail(layer,
         "parameters is " + std::to_string(layer.parameters()) + "; expected 0 to 2^31 - 1 floats");
  }
}

void ValidateTime(const ReplayLayer& layer, const char* field, double milliseconds) {
  if (!(milliseconds >= 0 && milliseconds <= kMaxMilliseconds)) {
    Fail(layer, std::string(field) + " is " + std::to_string(milliseconds) +
                    "; expected 0 to 3600000 milliseconds");
  }
}

}  // namespace

void ValidateReplay(const Replay& replay) {
  if (replay.layers().empty()) throw ConfigError("replay: layers is empty; expected at least one");
  if (replay.batch() < 1) {
    throw ConfigError("replay: batch is " + std::to_string(replay.batch()) +
                      "; expected 1 or more samples");
  }
  if (replay.iterations() < 1) {
    throw ConfigError("replay: iterations is " + std::to_string(replay.iterations()) +
                      "; expected 1 or more");
  }
  std::set<std::string> names;
  bool learns = false;
  for (const ReplayLayer& layer : replay.layers()) {
    if (layer.name().empty()) throw ConfigError("replay: a layer has no name");
    if (!names.insert(layer.name()).second) Fail(layer, "another layer has the same name");
    ValidateSizes(layer);
    ValidateTime(layer, "forward_ms", layer.forward_ms());
    ValidateTime(layer, "backward_ms", layer.backward_ms());
    learns |= IsInnerProduct(layer) || layer.parameters() > 0;
  }
  if (!learns) throw ConfigError("replay: no layer has parameters; there is nothing to exchange");
}

ReplayEngine::ReplayEngine(Replay replay, int rank, uint64_t seed)
    : replay_(std::move(replay)), rank_(static_cast<uint64_t>(rank)), seed_(seed) {
  ValidateReplay(replay_);
  model_.set_name("replay");
  model_.set_batch(replay_.batch());
  UpdateRuleSpec& rule = *model_.mutable_update_rule();
  rule.set_type("SGD");
  rule.set_base_lr(0.01F);
  rule.set_lr_policy("fixed");
  rule.set_momentum(0.9F);
  for (const ReplayLayer& layer : replay_.layers()) AddToModel(layer);
  DeclareTimes();
  parameters_.resize(model_.layers_size());
  written_.resize(model_.layers_size());
}

void ReplayEngine::AddToModel(const ReplayLayer& layer) {
  if (!IsInnerProduct(layer) && layer.parameters() == 0) {
    layer_of_step_.emplace_back(std::nullopt);
    return;
  }
  layer_of_step_.emplace_back(model_.layers_size());
  LayerSpec& spec = *model_.add_layers();
  spec.set_name(layer.name());
  spec.set_type(layer.type());
  BlobSpec& weights = *spec.add_blobs();
  weights.set_lr_mult(1);
  weights.set_decay_mult(1);
  if (!IsInnerProduct(layer)) {
    weights.add_shape(layer.parameters());
    return;
  }
  BlobSpec& bias = *spec.add_blobs();
  bias = weights;
  bias.add_shape(layer.outputs());
  weights.add_shape(layer.outputs());
  weights.add_shape(layer.inputs());
  InnerProductSpec& product = *spec.mutable_inner_product();
  product.set_outputs(layer.outputs());
  product.set_inputs(layer.inputs());
  product.set_rows(replay_.batch());
}

void ReplayEngine::DeclareTimes() {
  int below = 0;
  for (size_t step = 0; step < layer_of_step_.size(); ++step) {
    below = layer_of_step_[step].value_or(below);
    LayerSpec& spec = *model_.mutable_layers(below);
    const ReplayLayer& layer = replay_.layers(static_cast<int>(step));
    spec.set_forward_ms(spec.forward_ms() + layer.forward_ms());
    spec.set_backward_ms(spec.backward_ms() + layer.backward_ms());
  }
}

void ReplayEngine::BindParameters(int layer, std::span<float> values) {
  parameters_.at(layer) = values;
}

void ReplayEngine::FillParameters() {
  for (int i = 0; i < model_.layers_size(); ++i) {
    FillValues(DeriveSeed(seed_, model_.layers(i).name()), parameters_[i]);
  }
}

void ReplayEngine::LoadBatch(int64_t iteration) {
  iteration_ = static_cast<uint64_t>(iteration);
  step_end_ = returned_ = Clock::now();
}

void ReplayEngine::Forward(int step) {
  StartStep(replay_.layers(step).forward_ms());
  FinishStep();
}

void ReplayEngine::Backward(int step, const GradientTarget& target) {
  StartStep(replay_.layers(step).backward_ms());
  if (layer_of_step_[step]) WriteGradient(*layer_of_step_[step], target);
  FinishStep();
}

void ReplayEngine::WriteGradient(int layer, const GradientTarget& target) {
  const uint64_t seed = DeriveSeed(DeriveSeed(rank_, model_.layers(layer).name()), 0);
  WrittenTargets& written = written_[layer];
  WriteValues(seed, target.dense, written.dense);
  WriteValues(seed + 1, target.u, written.u);
  WriteValues(seed + 2, target.v, written.v);
}

void ReplayEngine::WriteValues(uint64_t seed, std::span<float> values, Written& written) const {
  if (values.empty()) return;
  if (std::find(written.begin(), written.end(), values.data()) == written.end()) {
    FillValues(seed, values);
    written = {written[1], values.data()};
  }
  Random random(DeriveSeed(seed, iteration_));
  for (size_t i = 0; i < values.size(); i += kChangeInterval) values[i] = ToValue(random.Next());
}

void ReplayEngine::StartStep(double milliseconds) {
  const Clock::duration spent_by_caller = Clock::now() - returned_;
  step_end_ += spent_by_caller + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double, std::milli>(milliseconds));
}

void ReplayEngine::FinishStep() {
  std::this_thread::sleep_until(step_end_);
  returned_ = Clock::now();
}

}  // namespace poseidon
