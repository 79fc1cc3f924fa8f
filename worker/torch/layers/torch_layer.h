// Layers on libtorch: what one step of a net computes forward and backward.
//
// A layer type is a maker function and one line of the table in torch_layer.cc. Types that nets
// have many layers of compute their gradients themselves, by libtorch's own functions
// (MakeLayerWithGradient, or an implementation of TorchLayer): autograd would hand each layer's
// backward pass over to another thread, and wait for it. The others are a function on tensors that
// autograd differentiates (MakeAutogradLayer).
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caffe_adapter/net/net.h"

namespace poseidon {

class BatchReader;
class LabelChecks;
struct DataShare;

using Tensors = std::vector<at::Tensor>;

// What a forward pass is of.
struct Pass {
  int64_t iteration = 0;              // decides random numbers
  const BatchReader* data = nullptr;  // names samples in errors; may be null
  LabelChecks* later = nullptr;       // checks labels after the pass; null: at once
};

// Where a layer's backward pass writes its parameters' gradients: memory of the caller that it
// overwrites. Either `blobs` is set, one for each parameter and of its shape, undefined where none
// is wanted; or `u` and `v` are (GradientBuffers in worker/engine/engine.h).
struct ParameterGradients {
  Tensors blobs;
  at::Tensor u;
  at::Tensor v;
};

// Tensors are all on one device. There, a layer only puts work in the device's stream: nothing
// waits for the device, as what reads a value on the host does. Only Embed's backward pass may,
// inside of libtorch, and Filter, whose tops are as large as the values say.
//
// One thread at a time.
class TorchLayer {
 public:
  virtual ~TorchLayer() = default;

  // The tops from the bottoms. Tensors have the description's shapes, but for the first extent of
  // what comes through a Filter layer (caffe_adapter/net/filtered_blobs.h), and require no
  // gradient; their memory format is any. `parameters` may be kept until Backward and change after
  // it.
  virtual Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) = 0;

  // After Forward in the training phase, if the layer has parameters or a bottom needs a gradient:
  // the gradients at the bottoms from those at the tops. Undefined stands for zero or not needed;
  // at least one top's is defined. Writes all of `gradients`.
  virtual Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) = 0;

  // The worker's share of the data from the next pass on.
  virtual void SetShare(const DataShare& /*share*/) {}
};

// What a layer is made from.
struct TorchLayerInput {
  const LayerDescription& description;  // outlives the layer
  std::vector<bool> bottom_needs_gradient;
  std::vector<bool> parameter_needs_gradient;
  // Whether nobody but the layer will read bottom 0 from now on, so that a top may take its memory.
  bool may_overwrite_bottom = false;
  uint64_t seed = 0;  // of the layer's random numbers, its own on each worker
  at::Device device = at::kCPU;
  // Of an iteration, at most.
  int64_t passes = 1;
  // Of the worker (BatchReaderOptions), as it begins; for layers of the user's own, and those that
  // carry states, which are of the streams that it reads.
  int rank = 0;
  int workers = 1;

  // Throws ConfigError: the layer's place, name and type, and the message.
  [[noreturn]] void Fail(const std::string& message) const;

  // Fails if a gradient is wanted at a bottom that has none: labels, indices.
  void CheckNoGradient(size_t bottom, const std::string& what) const;

  // An axis of bottom 0, counted from the end if negative, as a number from 0.
  int Axis(int axis) const;
};

// Throws ConfigError for a type that is not known here and for what a layer can't do.
std::unique_ptr<TorchLayer> MakeTorchLayer(const TorchLayerInput& input);

// A layer given by a function from bottoms and parameters to tops, whose gradients autograd finds.
using TensorFunction =
    std::function<Tensors(const Pass& pass, const Tensors& bottoms, const Tensors& parameters)>;
std::unique_ptr<TorchLayer> MakeAutogradLayer(const TorchLayerInput& input,
                                              TensorFunction function);

// What a forward pass gives: the tops, and what the gradient needs of it besides.
struct Computed {
  Tensors tops;
  Tensors kept;
};

// A layer without parameters, given by a function from bottoms to tops and by its gradient, from
// the gradients at the tops and what was kept to those at the bottoms.
using ComputeFunction = std::function<Computed(const Pass& pass, const Tensors& bottoms)>;
using GradientFunction = std::function<Tensors(const Tensors& top_gradients, const Tensors& kept)>;
std::unique_ptr<TorchLayer> MakeLayerWithGradient(const TorchLayerInput& input,
                                                  ComputeFunction function,
                                                  GradientFunction gradient);

// A layer given by a function that has no gradient. It may depend on learned parameters as long as
// no loss depends on it: its backward pass throws ConfigError.
std::unique_ptr<TorchLayer> MakeLayerWithoutGradient(const TorchLayerInput& input,
                                                     TensorFunction function);

// at::index_select with a gradient that has the same bits in each run, also where an index comes
// more than once.
at::Tensor SelectIndices(const at::Tensor& from, int64_t axis, const at::Tensor& indices);

// The makers, by family.

// torch_learned_layers.cc: with parameters.
std::unique_ptr<TorchLayer> MakeConvolution(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeDeconvolution(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeInnerProduct(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeEmbed(const TorchLayerInput& input);
// Whether a Scale layer learns a number for each channel, the second axis.
bool IsScaleOfChannels(const LayerDescription& layer);
std::unique_ptr<TorchLayer> MakeScale(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeBias(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeParameter(const TorchLayerInput& input);

// torch_pooling_layers.cc: that slide windows over images.
std::unique_ptr<TorchLayer> MakePooling(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSpp(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeIm2col(const TorchLayerInput& input);

// torch_normalization_layers.cc
std::unique_ptr<TorchLayer> MakeBatchNorm(const TorchLayerInput& input);
// Whether a Scale layer on the top of a BatchNorm layer can be computed with it.
bool CanScaleBatchNorm(const LayerDescription& norm, const LayerDescription& scale);
// If so, if nobody else reads that top: it is the bottom then, and the second layer does the work
// of both, in fewer passes over the data.
struct ScaledBatchNorm {
  std::unique_ptr<TorchLayer> norm;
  std::unique_ptr<TorchLayer> scale;
};
ScaledBatchNorm MakeScaledBatchNorm(const TorchLayerInput& norm, const TorchLayerInput& scale);
std::unique_ptr<TorchLayer> MakeMvn(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeLrn(const TorchLayerInput& input);

// torch_neuron_layers.cc: that change values one by one.
std::unique_ptr<TorchLayer> MakeAbsVal(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeBnll(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeClip(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeDropout(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeElu(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeExp(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeLog(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakePRelu(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakePower(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeRelu(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSigmoid(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSwish(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeTanh(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeThreshold(const TorchLayerInput& input);

// torch_blob_layers.cc: that compute on blobs of any shape.
std::unique_ptr<TorchLayer> MakeArgMax(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeAxpy(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeEltwise(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeReduction(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSoftmax(const TorchLayerInput& input);

// torch_recurrent_layers.cc: that step through time.
std::unique_ptr<TorchLayer> MakeLstm(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeLstmUnit(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeRnn(const TorchLayerInput& input);

// torch_reshaping_layers.cc: that cut, join and reshape blobs without computing.
std::unique_ptr<TorchLayer> MakeBatchReindex(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeConcat(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeCrop(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeFilter(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeReshape(const TorchLayerInput& input);  // and Flatten
std::unique_ptr<TorchLayer> MakeSilence(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSlice(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSplit(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeTile(const TorchLayerInput& input);

// torch_class_loss_layers.cc: on scores of classes and labels.
std::unique_ptr<TorchLayer> MakeAccuracy(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeHingeLoss(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeInfogainLoss(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeMultinomialLogisticLoss(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSoftmaxWithLoss(const TorchLayerInput& input);

// torch_loss_layers.cc: the other losses.
std::unique_ptr<TorchLayer> MakeContrastiveLoss(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeEuclideanLoss(const TorchLayerInput& input);
std::unique_ptr<TorchLayer> MakeSigmoidCrossEntropyLoss(const TorchLayerInput& input);

// torch_python_layer.cc: with bottoms or parameters, that the user has written.
std::unique_ptr<TorchLayer> MakePython(const TorchLayerInput& input);

}  // namespace poseidon
