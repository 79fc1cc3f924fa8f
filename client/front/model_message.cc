#include "client/front/model_message.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "client/worker_protocol.h"
#include "core/error.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

const char* NameOf(OptimizerType type) {
  switch (type) {
    case OptimizerType::kSgd:
      return "SGD";
    case OptimizerType::kNesterov:
      return "Nesterov";
    case OptimizerType::kAdaGrad:
      return "AdaGrad";
    case OptimizerType::kRmsProp:
      return "RMSProp";
    case OptimizerType::kAdaDelta:
      return "AdaDelta";
    case OptimizerType::kAdam:
      return "Adam";
    case OptimizerType::kPyTorchSgd:
      return "TorchSGD";
    case OptimizerType::kPyTorchAdamW:
      return "TorchAdamW";
    case OptimizerType::kMeanGradient:
      return "MeanGradient";
  }
  throw ConfigError("there is no optimizer type " + std::to_string(static_cast<int>(type)));
}

const char* NameOf(LearningRatePolicy policy) {
  switch (policy) {
    case LearningRatePolicy::kFixed:
      return "fixed";
    case LearningRatePolicy::kStep:
      return "step";
    case LearningRatePolicy::kExp:
      return "exp";
    case LearningRatePolicy::kInv:
      return "inv";
    case LearningRatePolicy::kMultistep:
      return "multistep";
    case LearningRatePolicy::kPoly:
      return "poly";
    case LearningRatePolicy::kSigmoid:
      return "sigmoid";
  }
  throw ConfigError("there is no learning rate policy " + std::to_string(static_cast<int>(policy)));
}

UpdateRuleSpec ToUpdateRuleSpec(const Optimizer& optimizer) {
  UpdateRuleSpec rule;
  rule.set_type(NameOf(optimizer.type));
  rule.set_base_lr(optimizer.base_lr);
  rule.set_lr_policy(NameOf(optimizer.lr_policy));
  rule.set_gamma(optimizer.gamma);
  rule.set_power(optimizer.power);
  rule.set_stepsize(optimizer.stepsize);
  rule.mutable_stepvalue()->Add(optimizer.stepvalue.begin(), optimizer.stepvalue.end());
  rule.set_max_iter(optimizer.max_iter);
  rule.set_momentum(optimizer.momentum);
  rule.set_momentum2(optimizer.momentum2);
  rule.set_rms_decay(optimizer.rms_decay);
  rule.set_delta(optimizer.delta);
  rule.set_weight_decay(optimizer.weight_decay);
  rule.set_regularization_type(optimizer.weight_decay_norm == WeightDecayNorm::kL1 ? "L1" : "L2");
  rule.set_warmup_iterations(optimizer.warmup_iterations);
  rule.set_warmup_base_lr(optimizer.warmup_base_lr);
  ToUpdateRule(rule);  // throws what would otherwise end the job
  return rule;
}

[[noreturn]] void Refuse(const Layer& layer, const std::string& what) {
  throw ConfigError("layer \"" + layer.name + "\" of the model " + what);
}

// Of a whole model: of petabytes, so that what else is counted of it (bytes, an optimizer's state)
// is still a number of 64 bits.
constexpr int64_t kMostFloatsOfModel = int64_t{1} << 50;

// As the fields of jobs are that say a batch.
constexpr int64_t kLargestBatch = std::numeric_limits<int32_t>::max();

[[noreturn]] void RefuseSize(const Layer& layer) {
  Refuse(layer, "has too many floats; all layers of a model may have at most " +
                    std::to_string(kMostFloatsOfModel) + " together");
}

int64_t CountFloats(const Layer& layer, const Blob& blob) {
  int64_t floats = 1;
  for (const int64_t extent : blob.shape) {
    if (extent < 1) {
      Refuse(layer,
             "has a blob with the extent " + std::to_string(extent) + "; it must be 1 or more");
    }
    if (extent > kMostFloatsOfModel / floats) RefuseSize(layer);
    floats *= extent;
  }
  return floats;
}

// `floats`: of the layers before; those of this one are added.
void CheckBlobs(const Layer& layer, int64_t& floats) {
  if (layer.blobs.empty()) Refuse(layer, "has no blobs; leave out layers that learn nothing");
  for (const Blob& blob : layer.blobs) {
    floats += CountFloats(layer, blob);
    if (floats > kMostFloatsOfModel) RefuseSize(layer);
    if (blob.group < 0) {
      Refuse(layer, "has a blob of group " + std::to_string(blob.group) + "; groups count from 0");
    }
    for (const float multiplier : {blob.lr_mult, blob.decay_mult}) {
      if (std::isfinite(multiplier) && multiplier >= 0) continue;
      Refuse(layer, "has a multiplier of " + std::to_string(multiplier) + "; it must be 0 or more");
    }
  }
}

void CheckInnerProduct(const Layer& layer, const InnerProduct& product) {
  if (product.outputs < 1 || product.inputs < 1 || product.rows < 1) {
    Refuse(layer, "is an inner product whose outputs, inputs or rows are not above 0");
  }
  const std::string sizes =
      std::to_string(product.outputs) + " x " + std::to_string(product.inputs);
  if (layer.blobs.size() > 2) Refuse(layer, "is an inner product and has more than two blobs");
  // Divided, as a product of what somebody wrote may not fit.
  const int64_t weights = CountFloats(layer, layer.blobs[0]);
  if (weights % product.outputs != 0 || weights / product.outputs != product.inputs) {
    Refuse(layer, "is an inner product of " + sizes + ", but its first blob has " +
                      std::to_string(weights) + " floats");
  }
  if (product.rows > kMostFloatsOfModel / std::max(product.outputs, product.inputs)) {
    Refuse(layer, "is an inner product of " + sizes + " with " + std::to_string(product.rows) +
                      " rows; rows times outputs, and rows times inputs, may be at most " +
                      std::to_string(kMostFloatsOfModel));
  }
  if (layer.blobs.size() == 2 && CountFloats(layer, layer.blobs[1]) != product.outputs) {
    Refuse(layer, "is an inner product of " + sizes + ", but its bias has " +
                      std::to_string(CountFloats(layer, layer.blobs[1])) + " floats");
  }
}

// PyTorch's optimizers have the numbers of SetGroups instead, and the mean gradient is left to the
// program.
bool ReadsMultipliers(OptimizerType type) {
  return type != OptimizerType::kPyTorchSgd && type != OptimizerType::kPyTorchAdamW &&
         type != OptimizerType::kMeanGradient;
}

void CheckSomethingLearns(const Model& model) {
  if (!ReadsMultipliers(model.optimizer.type)) return;
  for (const Layer& layer : model.layers) {
    for (const Blob& blob : layer.blobs) {
      if (blob.lr_mult > 0) return;
    }
  }
  throw ConfigError(
      "no blob of the model learns, for each has the lr_mult 0; leave it out, or give 1, where a "
      "blob shall be trained");
}

// `floats` as CheckBlobs has it.
LayerSpec ToLayerSpec(const Layer& layer, int64_t& floats) {
  CheckBlobs(layer, floats);
  if (layer.multiply_adds < 0) Refuse(layer, "has negative multiply_adds");
  if (!IsDuration(layer.forward_ms) || !IsDuration(layer.backward_ms)) {
    Refuse(layer, "has a forward_ms or backward_ms that is negative or no number");
  }
  LayerSpec spec;
  spec.set_name(layer.name);
  spec.set_type(layer.type);
  for (const Blob& blob : layer.blobs) {
    BlobSpec& added = *spec.add_blobs();
    added.mutable_shape()->Add(blob.shape.begin(), blob.shape.end());
    added.set_lr_mult(blob.lr_mult);
    added.set_decay_mult(blob.decay_mult);
    added.set_group(blob.group);
  }
  if (layer.inner_product) {
    CheckInnerProduct(layer, *layer.inner_product);
    InnerProductSpec& product = *spec.mutable_inner_product();
    product.set_outputs(layer.inner_product->outputs);
    product.set_inputs(layer.inner_product->inputs);
    product.set_rows(layer.inner_product->rows);
  }
  spec.set_multiply_adds(layer.multiply_adds);
  spec.set_forward_ms(layer.forward_ms);
  spec.set_backward_ms(layer.backward_ms);
  return spec;
}

}  // namespace

bool IsDuration(double milliseconds) { return std::isfinite(milliseconds) && milliseconds >= 0; }

ModelSpec ToModelSpec(const Model& model) {
  if (model.layers.empty()) throw ConfigError("the model has no layers");
  if (model.batch < 0) {
    throw ConfigError("the model's batch is " + std::to_string(model.batch) +
                      "; it must be 1 or more, or 0 where nobody knows");
  }
  if (model.batch > kLargestBatch) {
    throw ConfigError("the model's batch is " + std::to_string(model.batch) +
                      "; it may be at most " + std::to_string(kLargestBatch));
  }
  if (model.iterations < 0) {
    throw ConfigError("the model's iterations are " + std::to_string(model.iterations) +
                      "; they must be 1 or more, or 0 where nobody knows");
  }
  ModelSpec spec;
  spec.set_name(model.name);
  std::set<std::string> names;
  int64_t floats = 0;
  for (const Layer& layer : model.layers) {
    if (layer.name.empty()) throw ConfigError("a layer of the model has no name");
    if (!names.insert(layer.name).second) Refuse(layer, "is there twice; give each a name");
    *spec.add_layers() = ToLayerSpec(layer, floats);
  }
  CheckModelNames(spec);
  CheckSomethingLearns(model);
  *spec.mutable_update_rule() = ToUpdateRuleSpec(model.optimizer);
  spec.set_batch(model.batch);
  spec.set_iterations(model.iterations);
  return spec;
}

}  // namespace poseidon
