#include "worker/torch/layers/torch_layer.h"

#include <ATen/TensorIndexing.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace poseidon {
namespace {

struct TorchLayerType {
  std::string_view name;
  std::unique_ptr<TorchLayer> (*make)(const TorchLayerInput& input);
};

constexpr TorchLayerType kTypes[] = {
    {"AbsVal", MakeAbsVal},
    {"Accuracy", MakeAccuracy},
    {"ArgMax", MakeArgMax},
    {"Axpy", MakeAxpy},
    {"BNLL", MakeBnll},
    {"BatchNorm", MakeBatchNorm},
    {"BatchReindex", MakeBatchReindex},
    {"Bias", MakeBias},
    {"Clip", MakeClip},
    {"Concat", MakeConcat},
    {"ContrastiveLoss", MakeContrastiveLoss},
    {"Convolution", MakeConvolution},
    {"Crop", MakeCrop},
    {"Deconvolution", MakeDeconvolution},
    {"Dropout", MakeDropout},
    {"ELU", MakeElu},
    {"Eltwise", MakeEltwise},
    {"Embed", MakeEmbed},
    {"EuclideanLoss", MakeEuclideanLoss},
    {"Exp", MakeExp},
    {"Filter", MakeFilter},
    {"Flatten", MakeReshape},
    {"HingeLoss", MakeHingeLoss},
    {"Im2col", MakeIm2col},
    {"InfogainLoss", MakeInfogainLoss},
    {"InnerProduct", MakeInnerProduct},
    {"LRN", MakeLrn},
    {"LSTM", MakeLstm},
    {"LSTMUnit", MakeLstmUnit},
    {"Log", MakeLog},
    {"MVN", MakeMvn},
    {"MultinomialLogisticLoss", MakeMultinomialLogisticLoss},
    {"PReLU", MakePRelu},
    {"Parameter", MakeParameter},
    {"Pooling", MakePooling},
    {"Power", MakePower},
    {"Python", MakePython},
    {"RNN", MakeRnn},
    {"ReLU", MakeRelu},
    {"Reduction", MakeReduction},
    {"Reshape", MakeReshape},
    {"SPP", MakeSpp},
    {"Scale", MakeScale},
    {"Sigmoid", MakeSigmoid},
    {"SigmoidCrossEntropyLoss", MakeSigmoidCrossEntropyLoss},
    {"Silence", MakeSilence},
    {"Slice", MakeSlice},
    {"Softmax", MakeSoftmax},
    {"SoftmaxWithLoss", MakeSoftmaxWithLoss},
    {"Split", MakeSplit},
    {"Swish", MakeSwish},
    {"TanH", MakeTanh},
    {"Threshold", MakeThreshold},
    {"Tile", MakeTile},
};

class AutogradLayer : public TorchLayer {
 public:
  AutogradLayer(const TorchLayerInput& input, TensorFunction function)
      : bottom_needs_gradient_(input.bottom_needs_gradient),
        parameter_needs_gradient_(input.parameter_needs_gradient),
        function_(std::move(function)) {
    for (const bool needs : bottom_needs_gradient_) any_needs_gradient_ |= needs;
    for (const bool needs : parameter_needs_gradient_) any_needs_gradient_ |= needs;
  }

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) override {
    const at::AutoGradMode mode(any_needs_gradient_);
    if (!any_needs_gradient_) return function_(pass, bottoms, parameters);
    bottoms_ = Leaves(bottoms, bottom_needs_gradient_);
    parameters_ = Leaves(parameters, parameter_needs_gradient_);
    tops_ = function_(pass, bottoms_, parameters_);
    Tensors detached;
    for (const at::Tensor& top : tops_) detached.push_back(top.detach());
    return detached;
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    Tensors outputs;
    Tensors output_gradients;
    for (size_t i = 0; i < tops_.size(); ++i) {
      if (!top_gradients[i].defined() || !tops_[i].requires_grad()) continue;
      outputs.push_back(tops_[i]);
      output_gradients.push_back(top_gradients[i]);
    }
    Tensors inputs;
    for (const Tensors& leaves : {bottoms_, parameters_}) {
      for (const at::Tensor& leaf : leaves) {
        if (leaf.requires_grad()) inputs.push_back(leaf);
      }
    }
    // A top may be constant for some settings of a layer.
    if (outputs.empty()) return Distribute(Tensors(inputs.size()), gradients);
    const Tensors found =
        torch::autograd::grad(outputs, inputs, output_gradients, /*retain_graph=*/{},
                              /*create_graph=*/false, /*allow_unused=*/true);
    return Distribute(found, gradients);
  }

 private:
  // The tensors themselves, or leaves of a new graph where a gradient is wanted.
  static Tensors Leaves(const Tensors& tensors, const std::vector<bool>& needs_gradient) {
    Tensors leaves;
    for (size_t i = 0; i < tensors.size(); ++i) {
      leaves.push_back(tensors[i].detach().set_requires_grad(needs_gradient[i]));
    }
    return leaves;
  }

  // The bottoms' part of what was found; the parameters' part goes to their memory.
  Tensors Distribute(const Tensors& found, const ParameterGradients& gradients) {
    auto next = found.begin();
    Tensors bottom_gradients(bottoms_.size());
    for (size_t i = 0; i < bottoms_.size(); ++i) {
      if (bottoms_[i].requires_grad()) bottom_gradients[i] = *next++;
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].requires_grad()) continue;
      if (next->defined()) {
        gradients.blobs[i].copy_(*next);
      } else {
        gradients.blobs[i].zero_();
      }
      ++next;
    }
    tops_.clear();
    bottoms_.clear();
    parameters_.clear();
    return bottom_gradients;
  }

  std::vector<bool> bottom_needs_gradient_;
  std::vector<bool> parameter_needs_gradient_;
  bool any_needs_gradient_ = false;
  TensorFunction function_;

  // Of the forward pass, until the backward pass.
  Tensors bottoms_;
  Tensors parameters_;
  Tensors tops_;
};

class LayerWithGradient : public TorchLayer {
 public:
  LayerWithGradient(const TorchLayerInput& input, ComputeFunction function,
                    GradientFunction gradient)
      : learns_(std::ranges::find(input.bottom_needs_gradient, true) !=
                input.bottom_needs_gradient.end()),
        function_(std::move(function)),
        gradient_(std::move(gradient)) {}

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors&) override {
    const at::AutoGradMode mode(false);
    Computed computed = function_(pass, bottoms);
    if (learns_) kept_ = std::move(computed.kept);
    return std::move(computed.tops);
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::AutoGradMode mode(false);
    return gradient_(top_gradients, std::exchange(kept_, {}));
  }

 private:
  bool learns_;
  ComputeFunction function_;
  GradientFunction gradient_;
  Tensors kept_;  // of the forward pass, until the backward pass
};

[[noreturn]] void FailOn(const LayerDescription& layer, const std::string& message) {
  throw ConfigError(layer.where,
                    "layer \"" + layer.name() + "\" (" + layer.type() + "): " + message);
}

class LayerWithoutGradient : public TorchLayer {
 public:
  LayerWithoutGradient(const LayerDescription& description, TensorFunction function)
      : description_(description), function_(std::move(function)) {}

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) override {
    const at::AutoGradMode mode(false);
    return function_(pass, bottoms, parameters);
  }

  Tensors Backward(const Tensors&, const ParameterGradients&) override {
    FailOn(description_,
           "this layer type has no gradient, but a loss depends on it and it on learned "
           "parameters; set propagate_down: false on the layer to stop there");
  }

 private:
  const LayerDescription& description_;
  TensorFunction function_;
};

}  // namespace

void TorchLayerInput::Fail(const std::string& message) const { FailOn(description, message); }

void TorchLayerInput::CheckNoGradient(size_t bottom, const std::string& what) const {
  if (!bottom_needs_gradient[bottom]) return;
  Fail("there is no gradient for " + what + ", but bottom \"" + description.bottoms[bottom].name +
       "\" depends on learned parameters");
}

int TorchLayerInput::Axis(int axis) const {
  return axis < 0 ? axis + static_cast<int>(description.bottoms[0].shape.size()) : axis;
}

std::unique_ptr<TorchLayer> MakeTorchLayer(const TorchLayerInput& input) {
  std::string known = "Data";
  for (const TorchLayerType& type : kTypes) {
    if (type.name == input.description.type()) return type.make(input);
    known += ", " + std::string(type.name);
  }
  input.Fail("this layer type can't be computed; those that can are " + known);
}

std::unique_ptr<TorchLayer> MakeAutogradLayer(const TorchLayerInput& input,
                                              TensorFunction function) {
  return std::make_unique<AutogradLayer>(input, std::move(function));
}

std::unique_ptr<TorchLayer> MakeLayerWithGradient(const TorchLayerInput& input,
                                                  ComputeFunction function,
                                                  GradientFunction gradient) {
  return std::make_unique<LayerWithGradient>(input, std::move(function), std::move(gradient));
}

std::unique_ptr<TorchLayer> MakeLayerWithoutGradient(const TorchLayerInput& input,
                                                     TensorFunction function) {
  return std::make_unique<LayerWithoutGradient>(input.description, std::move(function));
}

at::Tensor SelectIndices(const at::Tensor& from, int64_t axis, const at::Tensor& indices) {
  // Its gradient adds up what goes to one place in the indices' order on a CPU and in any order on
  // a GPU. That of at::index sorts by places on a GPU, but on a CPU threads take turns.
  if (from.is_cpu()) return at::index_select(from, axis, indices);
  std::vector<at::indexing::TensorIndex> all(axis,
                                             at::indexing::TensorIndex(at::indexing::Slice()));
  all.emplace_back(indices);
  return from.index(all);
}

}  // namespace poseidon
