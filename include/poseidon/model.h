// Model: what a program trains, as the job's scheduler sees it: the layers that learn, their sizes
// and how they are updated. Plain values; names are Caffe's.
//
//   poseidon::Model model{
//       .name = "perceptron",
//       .layers = {{.name = "fc1",
//                   .blobs = {{.shape = {500, 784}}, {.shape = {500}, .lr_mult = 2}},
//                   .inner_product = {{.outputs = 500, .inputs = 784, .rows = 64}}},
//                  {.name = "fc2", .blobs = {{.shape = {10, 500}}}}},
//       .optimizer = {.base_lr = 0.1F, .momentum = 0.9F},
//       .batch = 64,
//       .iterations = 1000};
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace poseidon {

// A blob of a layer that learns: float32, row-major.
struct Blob {
  // Its floats are the product; each extent is at least 1. A model has at most 2^50 floats.
  std::vector<int64_t> shape;
  // Multiplies the learning rate; 0: the blob stays as it is. kPyTorchSgd, kPyTorchAdamW and
  // kMeanGradient read neither this nor decay_mult.
  float lr_mult = 1;
  float decay_mult = 1;  // multiplies the weight decay
  // kPyTorchSgd and kPyTorchAdamW: which of Session::SetGroups' groups it belongs to, from 0.
  int group = 0;
};

// The gradient of an inner-product layer's weights over a batch is a product u^T v, u being the
// gradient at the layer's top (rows x outputs) and v the data at its bottom (rows x inputs). Where
// that is less to send, and the job's policy allows it, workers exchange u and v.
struct InnerProduct {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t rows = 0;  // on one worker: the batch; u and v have at most 2^50 floats each
};

struct Layer {
  std::string name = {};  // in messages and results
  // In memory a layer is its blobs one after the other; weights before bias.
  std::vector<Blob> blobs = {};
  // Set where the first blob is a matrix outputs x inputs that is multiplied with the layer's data,
  // and the second one, if any, a bias of `outputs` floats. There may be no third.
  std::optional<InnerProduct> inner_product = std::nullopt;
  std::string type = {};      // Caffe's layer type, for tables: "InnerProduct"
  int64_t multiply_adds = 0;  // of one sample's forward pass; 0: not known
  // Of one batch, in milliseconds, where they are known in advance: the policy TIME plans with
  // them.
  double forward_ms = 0;
  double backward_ms = 0;
};

enum class OptimizerType {
  kSgd,
  kNesterov,
  kAdaGrad,
  kRmsProp,
  kAdaDelta,
  kAdam,
  // torch.optim's, with its bits: the servers carry them out, by the numbers that
  // Session::SetGroups says, and no field of Optimizer but the type is read. The job's policy has
  // to be ALL_PS.
  kPyTorchSgd,
  kPyTorchAdamW,
  // No update: workers get the mean of their gradients and update their parameters themselves, all
  // in the same way (Session::mean_gradient).
  kMeanGradient,
};

// What the learning rate of iteration i, from 0, is: base_lr times
enum class LearningRatePolicy {
  kFixed,      // 1
  kStep,       // gamma ^ floor(i / stepsize)
  kExp,        // gamma ^ i
  kInv,        // (1 + gamma i) ^ -power
  kMultistep,  // gamma ^ (steps taken: how many stepvalues are at most i, where they ascend)
  kPoly,       // (1 - i / max_iter) ^ power
  kSigmoid,    // 1 / (1 + e ^ (-gamma (i - stepsize)))
};

enum class WeightDecayNorm { kL2, kL1 };

// How parameters become new ones; fields that type and policy do not read are not looked at.
struct Optimizer {
  OptimizerType type = OptimizerType::kSgd;
  float base_lr = 0.01F;
  LearningRatePolicy lr_policy = LearningRatePolicy::kFixed;
  float gamma = 0;
  float power = 0;
  int stepsize = 0;                 // iterations
  std::vector<int> stepvalue = {};  // iterations, mostly ascending
  int64_t max_iter = 0;             // iterations
  float momentum = 0;        // SGD, Nesterov; AdaDelta: decay; Adam: decay of the first moment
  float momentum2 = 0.999F;  // Adam: decay of the second moment
  float rms_decay = 0.99F;   // RMSProp: decay of the mean square
  float delta = 1e-8F;       // AdaGrad, RMSProp, AdaDelta, Adam: keeps divisors above 0
  float weight_decay = 0;
  WeightDecayNorm weight_decay_norm = WeightDecayNorm::kL2;
  // Gradual warm-up: before this iteration the rate is linear from warmup_base_lr to the policy's.
  int64_t warmup_iterations = 0;
  float warmup_base_lr = 0;
};

// The same on all workers of a job.
struct Model {
  std::string name = {};
  // In forward order; at least one, names all different. Something in them learns: not all lr_mult
  // are 0, unless the optimizer reads none (kPyTorchSgd, kPyTorchAdamW, kMeanGradient).
  std::vector<Layer> layers;
  Optimizer optimizer = {};
  // Samples that one worker computes in an iteration, below 2^31; 0: not known.
  int64_t batch = 1;
  int64_t iterations = 0;  // of the whole training; 0: not known
};

}  // namespace poseidon
