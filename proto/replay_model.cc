#include "proto/replay_model.h"

#include <limits>
#include <set>
#include <string>

#include "core/error.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// Caffe counts a blob's floats in an int.
constexpr int64_t kMaxFloats = std::numeric_limits<int32_t>::max();

// Longer sequences would have factors of more floats than a blob may have.
constexpr int64_t kMaxRowsPerSample = 1 << 24;

// An hour: whoever writes more has mistaken the unit.
constexpr double kMaxMilliseconds = 3.6e6;

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
    if (layer.rows_per_sample() < 1 || layer.rows_per_sample() > kMaxRowsPerSample) {
      Fail(layer, "rows_per_sample is " + std::to_string(layer.rows_per_sample()) +
                      "; expected 1 to " + std::to_string(kMaxRowsPerSample));
    }
    if (layer.has_parameters()) {
      Fail(layer,
           "parameters of an InnerProduct layer follow from inputs and outputs; leave it out");
    }
    return;
  }
  if (layer.has_inputs() || layer.has_outputs() || layer.has_rows_per_sample() ||
      layer.has_bias()) {
    Fail(
        layer,
        "inputs, outputs, rows_per_sample and bias are for type \"InnerProduct\" only, this is \"" +
            layer.type() + "\"");
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

void AddLayer(const ReplayLayer& layer, int64_t batch, ReplayModel& described) {
  if (!IsInnerProduct(layer) && layer.parameters() == 0) {
    described.layer_of_step.emplace_back(std::nullopt);
    return;
  }
  described.layer_of_step.emplace_back(described.model.layers_size());
  LayerSpec& spec = *described.model.add_layers();
  spec.set_name(layer.name());
  spec.set_type(layer.type());
  BlobSpec& weights = *spec.add_blobs();
  weights.set_lr_mult(1);
  weights.set_decay_mult(1);
  if (!IsInnerProduct(layer)) {
    weights.add_shape(layer.parameters());
    return;
  }
  weights.add_shape(layer.outputs());
  weights.add_shape(layer.inputs());
  if (layer.bias()) {
    BlobSpec& bias = *spec.add_blobs();
    bias.set_lr_mult(1);
    bias.set_decay_mult(1);
    bias.add_shape(layer.outputs());
  }
  InnerProductSpec& product = *spec.mutable_inner_product();
  product.set_outputs(layer.outputs());
  product.set_inputs(layer.inputs());
  product.set_rows(batch * layer.rows_per_sample());
}

void AddTimes(const Replay& replay, ReplayModel& described) {
  int below = 0;
  for (size_t step = 0; step < described.layer_of_step.size(); ++step) {
    below = described.layer_of_step[step].value_or(below);
    LayerSpec& spec = *described.model.mutable_layers(below);
    const ReplayLayer& layer = replay.layers(static_cast<int>(step));
    spec.set_forward_ms(spec.forward_ms() + layer.forward_ms());
    spec.set_backward_ms(spec.backward_ms() + layer.backward_ms());
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

ReplayModel DescribeReplay(const Replay& replay) {
  ValidateReplay(replay);
  ReplayModel described;
  described.model.set_name("replay");
  described.model.set_batch(replay.batch());
  UpdateRuleSpec& rule = *described.model.mutable_update_rule();
  rule.set_type("SGD");
  rule.set_base_lr(0.01F);
  rule.set_lr_policy("fixed");
  rule.set_momentum(0.9F);
  for (const ReplayLayer& layer : replay.layers()) AddLayer(layer, replay.batch(), described);
  AddTimes(replay, described);
  return described;
}

Replay ReplayOf(const ModelSpec& model) {
  Replay replay;
  replay.set_batch(static_cast<int32_t>(model.batch()));
  for (const LayerSpec& spec : model.layers()) {
    ReplayLayer& layer = *replay.add_layers();
    layer.set_name(spec.name());
    layer.set_type(spec.type());
    layer.set_forward_ms(spec.forward_ms());
    layer.set_backward_ms(spec.backward_ms());
    const InnerProductSpec& product = spec.inner_product();
    if (!spec.has_inner_product()) {
      // An InnerProduct that can't be sent as factors.
      if (IsInnerProduct(layer)) layer.set_type("InnerProduct without factors");
      layer.set_parameters(FloatCount(spec));
      continue;
    }
    if (model.batch() < 1 || product.rows() % model.batch() != 0) {
      Fail(layer, "its factors have " + std::to_string(product.rows()) +
                      " rows, which is no multiple of the batch, " + std::to_string(model.batch()));
    }
    layer.set_type("InnerProduct");
    layer.set_inputs(product.inputs());
    layer.set_outputs(product.outputs());
    if (product.rows() != model.batch()) layer.set_rows_per_sample(product.rows() / model.batch());
    if (spec.blobs_size() == 1) layer.set_bias(false);
  }
  return replay;
}

}  // namespace poseidon
