// Layers on libtorch: what one step of a net computes forward and backward.
//
// A layer type is a maker function and one line of the table in torch_layer.cc. Most are a function
// on tensors that autograd differentiates (MakeAutogradLayer); a type whose gradient must not be
// computed that way implements TorchLayer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caffe_adapter/net.h"

namespace poseidon {

class BatchReader;

using Tensors = std::vector<at::Tensor>;

// What a forward pass is of.
struct Pass {
  int64_t iteration = 0;              // decides random numbers
  const BatchReader* data = nullptr;  // names samples in errors; may be null
};

// Where a layer's backward pass writes its parameters' gradients: memory of the caller that it
// overwrites. Either `blobs` is set, one for each parameter and of its shape, undefined where none
// is wanted; or `u` and `v` are (GradientTarget in worker/engine.h).
struct ParameterGradients {
  Tensors blobs;
  at::Tensor u;
  at::Tensor v;
};

// One thread at a time.
class TorchLayer {
 public:
  virtual ~TorchLayer() = default;

  // The tops from the bottoms. Tensors have the description's shapes and require no gradient; their
  // memory format is any. `parameters` may be kept until Backward and change after it.
  virtual Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) = 0;

  // After Forward in the training phase, if the layer has parameters or a bottom needs a gradient:
  // the gradients at the bottoms from those at the tops. Undefined stands for zero or not needed;
  // at least one top's is defined. Writes all of `gradients`.
  virtual Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) = 0;
};

// What a layer is made from.
struct TorchLayerInput {
  const LayerDescription& description;  // outlives the layer
  std::vector<bool> bottom_needs_gradient;
  std::vector<bool> parameter_needs_gradient;
  uint64_t seed = 0;  // of the layer's random numbers, its own on each worker

  // Throws ConfigError: the layer's place, name and type, and the message.
  [[noreturn]] void Fail(const std::string& message) const;
};

// Throws ConfigError for a type that is not known here and for what a layer can't do.
std::unique_ptr<TorchLayer> MakeTorchLayer(const TorchLayerInput& input);

// A layer given by a function from bottoms and parameters to tops, whose gradients autograd finds.
using TensorFunction =
    std::function<Tensors(const Pass& pass, const Tensors& bottoms, const Tensors& parameters)>;
std::unique_ptr<TorchLayer> MakeAutogradLayer(const TorchLayerInput& input,
                                              TensorFunction function);

// The makers, by family.

// torch_learned_layers.cc: with parameters.
std::unique_ptr<TorchLayer> MakeConvolution(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeInnerProduct(const TorchLayerInput& input);

// torch_image_layers.cc: on (num, channels, height, width), without parameters.
std::unique_ptr<TorchLayer> MakePooling(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeLrn(const TorchLayerInput& input);

// torch_blob_layers.cc: on blobs of any shape, without parameters.
std::unique_ptr<TorchLayer> MakeRelu(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSigmoid(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeTanh(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeDropout(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSoftmax(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeConcat(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeEltwise(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeFlatten(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSplit(const TorchLayerInput& input);

// torch_loss_layers.cc: on predictions and labels.
std::unique_ptr<TorchLayer> MakeSoftmaxWithLoss(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeAccuracy(const TorchLayerInput& input);

}  // namespace poseidon
