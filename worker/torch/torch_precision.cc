#include "worker/torch/torch_precision.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace poseidon {
namespace {

enum class Arithmetic { kHalf, kAsItComes, kFloat32 };

constexpr std::string_view kInHalf[] = {"Convolution", "Deconvolution", "InnerProduct"};

constexpr std::string_view kAsItComes[] = {
    "Axpy",    "BatchNorm", "Bias",    "Concat", "Crop",    "Dropout", "Eltwise", "Flatten",
    "Pooling", "ReLU",      "Reshape", "Scale",  "Silence", "Slice",   "Split",   "Tile"};

template <size_t kCount>
bool Contains(const std::string_view (&names)[kCount], const std::string& name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool IsLoss(const LayerDescription& layer) {
  return std::any_of(layer.loss_weights.begin(), layer.loss_weights.end(),
                     [](float weight) { return weight != 0; });
}

// Stochastic pooling adds up all values of a window one by one. A second top has the maxima's
// places, of which a half type tells the first 2,048 or 256 apart.
bool NeedsFloat32(const LayerDescription& pooling) {
  return pooling.tops.size() > 1 ||
         pooling.parameter.pooling_param().pool() == caffe::PoolingParameter::STOCHASTIC;
}

Arithmetic ArithmeticOf(const LayerDescription& layer) {
  if (IsLoss(layer)) return Arithmetic::kFloat32;  // also so that its scaled weight is in range
  if (Contains(kInHalf, layer.type())) return Arithmetic::kHalf;
  if (layer.type() == "Pooling" && NeedsFloat32(layer)) return Arithmetic::kFloat32;
  if (Contains(kAsItComes, layer.type())) return Arithmetic::kAsItComes;
  return Arithmetic::kFloat32;
}

at::ScalarType HalfType(Precision precision) {
  return precision == Precision::kFloat16 ? at::kHalf : at::kBFloat16;
}

at::Tensor Convert(const at::Tensor& tensor, at::ScalarType type) {
  return tensor.defined() ? tensor.to(type) : tensor;
}

class MixedLayer : public TorchLayer {
 public:
  MixedLayer(std::unique_ptr<TorchLayer> made, const TorchLayerInput& input, Precision precision)
      : layer_(std::move(made)),
        arithmetic_(ArithmeticOf(input.description)),
        half_(HalfType(precision)),
        in_float_(input.device.is_cpu()) {}

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) override {
    values_ = ValuesType(bottoms);
    bottom_types_.clear();
    for (const at::Tensor& bottom : bottoms) bottom_types_.push_back(bottom.scalar_type());
    const Tensors tops =
        layer_->Forward(pass, Rounded(bottoms),
                        arithmetic_ == Arithmetic::kHalf ? Rounded(parameters) : parameters);
    Tensors converted;
    for (const at::Tensor& top : tops) converted.push_back(Convert(top, values_));
    return converted;
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const ParameterGradients rounded = HalfGradients(gradients);
    Tensors bottom_gradients = layer_->Backward(Rounded(top_gradients), rounded);
    for (size_t i = 0; i < bottom_gradients.size(); ++i) {
      bottom_gradients[i] = Convert(Convert(bottom_gradients[i], values_), bottom_types_[i]);
    }
    for (size_t i = 0; i < gradients.blobs.size(); ++i) {
      if (arithmetic_ != Arithmetic::kHalf || !gradients.blobs[i].defined()) continue;
      gradients.blobs[i].copy_(Convert(rounded.blobs[i], half_));
    }
    return bottom_gradients;
  }

  void SetShare(const DataShare& share) override { layer_->SetShare(share); }

 private:
  // Of tops and what is read to compute them.
  at::ScalarType ValuesType(const Tensors& bottoms) const {
    if (arithmetic_ == Arithmetic::kHalf) return half_;
    if (arithmetic_ == Arithmetic::kFloat32) return at::kFloat;
    const bool all_half =
        std::all_of(bottoms.begin(), bottoms.end(),
                    [this](const at::Tensor& bottom) { return bottom.scalar_type() == half_; });
    return all_half ? half_ : at::kFloat;
  }

  // That the layer is given.
  at::ScalarType ComputeType() const { return in_float_ ? at::kFloat : values_; }

  Tensors Rounded(const Tensors& tensors) const {
    Tensors rounded;
    for (const at::Tensor& tensor : tensors) {
      rounded.push_back(Convert(Convert(tensor, values_), ComputeType()));
    }
    return rounded;
  }

  // Memory for the parameters' gradients of a layer in the half type; the factors' takes any type.
  ParameterGradients HalfGradients(const ParameterGradients& gradients) const {
    if (arithmetic_ != Arithmetic::kHalf) return gradients;
    ParameterGradients half = gradients;
    for (at::Tensor& blob : half.blobs) {
      if (blob.defined()) blob = at::empty(blob.sizes(), blob.options().dtype(ComputeType()));
    }
    return half;
  }

  std::unique_ptr<TorchLayer> layer_;
  Arithmetic arithmetic_;
  at::ScalarType half_;
  bool in_float_;

  // Of the forward pass.
  at::ScalarType values_ = at::kFloat;
  std::vector<at::ScalarType> bottom_types_;
};

}  // namespace

std::unique_ptr<TorchLayer> WithPrecision(std::unique_ptr<TorchLayer> made,
                                          const TorchLayerInput& input, Precision precision) {
  if (precision == Precision::kFloat32) return made;
  return std::make_unique<MixedLayer>(std::move(made), input, precision);
}

}  // namespace poseidon
