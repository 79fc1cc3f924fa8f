// Layers with parameters.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "caffe_adapter/net/shape.h"
#include "caffe_adapter/net/sliding_window.h"
#include "worker/torch/layers/torch_labels.h"
#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/layers/torch_product.h"

namespace poseidon {
namespace {

// Caffe's InnerProduct: top = bottom W^T + bias, the bottom flattened from an axis on. Its weight
// gradient is written by the matrix product itself, or not computed but left as its two factors.
class InnerProduct : public TorchLayer {
 public:
  explicit InnerProduct(const TorchLayerInput& input)
      : bottom_needs_gradient_(input.bottom_needs_gradient[0]),
        transpose_(input.description.parameter.inner_product_param().transpose()) {
    const BlobDescription& bottom = input.description.bottoms[0];
    const int axes = static_cast<int>(bottom.shape.size());
    const int axis = input.description.parameter.inner_product_param().axis();
    inputs_ = Count(bottom.shape, axis < 0 ? axis + axes : axis, axes);
    top_shape_ = input.description.tops[0].shape;
  }

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    format_ = bottoms[0].suggest_memory_format();
    bottom_shape_ = bottoms[0].sizes().vec();
    rows_ = bottoms[0].numel() / inputs_;
    data_ = bottoms[0].reshape({rows_, inputs_});
    weights_ = OutputsByInputs(parameters[0]);
    const bool biased = parameters.size() > 1;
    at::Tensor top = at::empty({rows_, weights_.size(0)}, data_.options());
    if (biased) top.copy_(parameters[1].expand_as(top));
    Multiply(data_, weights_.t(), /*add=*/biased, top);
    const bool all = rows_ * top_shape_.back() == Count(top_shape_);
    return {all ? top.view(top_shape_) : top};  // fewer come through a Filter layer, with axis 1
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const at::Tensor top_gradient = top_gradients[0].reshape({rows_, top_shape_.back()});
    if (gradients.u.defined()) {
      gradients.u.copy_(top_gradient);
      gradients.v.copy_(data_);
    } else {
      WriteDense(top_gradient, gradients.blobs);
    }
    at::Tensor bottom_gradient;
    if (bottom_needs_gradient_) {
      // In the format of the bottom: the mean pooling below is ten times as slow otherwise.
      bottom_gradient = at::empty({rows_, inputs_}, data_.options());
      Multiply(top_gradient, weights_, /*add=*/false, bottom_gradient);
      bottom_gradient = bottom_gradient.view(bottom_shape_).contiguous(format_);
    }
    data_.reset();
    return {bottom_gradient};
  }

 private:
  at::Tensor OutputsByInputs(const at::Tensor& weights) const {
    return transpose_ ? weights.t() : weights;
  }

  void WriteDense(const at::Tensor& top_gradient, const Tensors& blobs) const {
    if (blobs[0].defined()) {
      Multiply(top_gradient.t(), data_, /*add=*/false, OutputsByInputs(blobs[0]));
    }
    if (blobs.size() > 1 && blobs[1].defined()) {
      at::Tensor bias_gradient = blobs[1];
      at::sum_out(bias_gradient, top_gradient, {0});
    }
  }

  bool bottom_needs_gradient_;
  bool transpose_;
  int64_t inputs_;
  Shape top_shape_;

  // Of the forward pass, until the backward pass.
  int64_t rows_ = 0;
  Shape bottom_shape_;
  at::Tensor data_;
  at::Tensor weights_;
  at::MemoryFormat format_ = at::MemoryFormat::Contiguous;
};

// --- Convolution and its inverse. ---

// All axes before the channels' are samples.
Shape AsImages(const Shape& shape, int axis) {
  Shape images = {Count(shape, 0, axis)};
  images.insert(images.end(), shape.begin() + axis, shape.end());
  return images;
}

// With several bottoms, each is convolved with the same weights, whose gradient is the sum.
class Convolution : public TorchLayer {
 public:
  Convolution(const TorchLayerInput& input, bool inverse)
      : inverse_(inverse),
        bottom_needs_gradient_(input.bottom_needs_gradient),
        group_(input.description.parameter.convolution_param().group()),
        bottom_(input.description.bottoms[0].shape),
        top_(input.description.tops[0].shape) {
    const caffe::ConvolutionParameter& p = input.description.parameter.convolution_param();
    const int axis = input.Axis(p.axis());
    const int directions = static_cast<int>(bottom_.size()) - axis - 1;
    window_ = ConvolutionWindow(p, directions);
    output_padding_.resize(directions, 0);
    images_ = AsImages(bottom_, axis);
    convolved_ = AsImages(top_, axis);
    as_images_ = axis == 1;
  }

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    const at::AutoGradMode mode(false);
    bottoms_ = bottoms;
    weights_ = parameters[0];
    const at::Tensor bias = parameters.size() > 1 ? parameters[1] : at::Tensor();
    Tensors tops;
    for (at::Tensor& bottom : bottoms_) {
      if (!as_images_) bottom = bottom.reshape(images_);
      const at::Tensor top = at::convolution(bottom, weights_, bias, window_.stride, window_.pad,
                                             window_.dilation, inverse_, output_padding_, group_);
      tops.push_back(as_images_ ? top : top.reshape(top_));
    }
    return tops;
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const at::AutoGradMode mode(false);
    Tensors bottom_gradients(bottoms_.size());
    bool written = false;
    for (size_t i = 0; i < bottoms_.size(); ++i) {
      if (!top_gradients[i].defined()) continue;
      Gradients found = GradientsAt(i, top_gradients[i], gradients.blobs);
      bottom_gradients[i] = std::move(found.bottom);
      for (size_t blob = 0; blob < gradients.blobs.size(); ++blob) {
        const at::Tensor& target = gradients.blobs[blob];
        if (!target.defined()) continue;
        written ? target.add_(found.parameters[blob]) : target.copy_(found.parameters[blob]);
      }
      written = true;
    }
    bottoms_.clear();
    weights_.reset();
    return bottom_gradients;
  }

 private:
  struct Gradients {
    at::Tensor bottom;
    std::array<at::Tensor, 2> parameters;  // weights, bias
  };

  Gradients GradientsAt(size_t i, const at::Tensor& top_gradient, const Tensors& wanted) const {
    const at::Tensor given = as_images_ ? top_gradient : top_gradient.reshape(convolved_);
    const bool bias = wanted.size() > 1 && wanted[1].defined();
    auto [bottom, weights, biases] = at::convolution_backward(
        given, bottoms_[i], weights_, given.sizes().slice(1, 1), window_.stride, window_.pad,
        window_.dilation, inverse_, output_padding_, group_,
        {bottom_needs_gradient_[i], wanted[0].defined(), bias});
    if (!as_images_ && bottom.defined()) bottom = bottom.reshape(bottom_);
    return {std::move(bottom), {std::move(weights), std::move(biases)}};
  }

 private:
  bool inverse_;
  std::vector<bool> bottom_needs_gradient_;
  int64_t group_;
  Shape bottom_;
  Shape top_;
  SlidingWindow window_;
  std::vector<int64_t> output_padding_;
  Shape images_;     // the bottom's
  Shape convolved_;  // and the top's
  bool as_images_;   // they are like that already

  // Of the forward pass, until the backward pass.
  Tensors bottoms_;
  at::Tensor weights_;
};

// --- Scale and Bias. ---

// A scale, and maybe a bias, of each channel: libtorch's batch normalization by mean 0 and variance
// 1, which finds all gradients in one pass over the data where autograd makes five.
class ChannelScale : public TorchLayer {
 public:
  explicit ChannelScale(const TorchLayerInput& input)
      : bottom_needs_gradient_(input.bottom_needs_gradient[0]) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    const at::AutoGradMode mode(false);
    bottom_ = bottoms[0].contiguous(bottoms[0].suggest_memory_format());
    scale_ = parameters[0];
    mean_ = at::zeros_like(scale_);
    variance_ = at::ones_like(scale_);
    const at::Tensor bias = parameters.size() > 1 ? parameters[1] : at::Tensor();
    return {std::get<0>(at::native_batch_norm(bottom_, scale_, bias, mean_, variance_,
                                              /*training=*/false, /*momentum=*/0, /*eps=*/0))};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const at::AutoGradMode mode(false);
    const bool scale = gradients.blobs[0].defined();
    const bool bias = gradients.blobs.size() > 1 && gradients.blobs[1].defined();
    const auto [bottom_gradient, scale_gradient, bias_gradient] = at::native_batch_norm_backward(
        top_gradients[0].contiguous(bottom_.suggest_memory_format()), bottom_, scale_, mean_,
        variance_, /*save_mean=*/{}, /*save_invstd=*/{}, /*train=*/false, /*eps=*/0,
        {bottom_needs_gradient_, scale, bias});
    if (scale) gradients.blobs[0].copy_(scale_gradient);
    if (bias) gradients.blobs[1].copy_(bias_gradient);
    bottom_.reset();
    return {bottom_gradient};
  }

 private:
  bool bottom_needs_gradient_;

  // Of the forward pass, until the backward pass.
  at::Tensor bottom_;
  at::Tensor scale_;
  at::Tensor mean_;
  at::Tensor variance_;
};

// The shape in which a scale or bias that lies over the axes of a blob from `axis` on meets it.
Shape SpreadOver(const Shape& blob, const Shape& small, int axis) {
  if (small.empty()) return {};
  Shape spread(blob.size() - static_cast<size_t>(axis), 1);
  std::copy(small.begin(), small.end(), spread.begin());
  return spread;
}

}  // namespace

std::unique_ptr<TorchLayer> MakeConvolution(const TorchLayerInput& input) {
  return std::make_unique<Convolution>(input, /*inverse=*/false);
}

std::unique_ptr<TorchLayer> MakeDeconvolution(const TorchLayerInput& input) {
  return std::make_unique<Convolution>(input, /*inverse=*/true);
}

std::unique_ptr<TorchLayer> MakeInnerProduct(const TorchLayerInput& input) {
  return std::make_unique<InnerProduct>(input);
}

// For each value of the bottom the row of the weights with its number, plus the bias.
std::unique_ptr<TorchLayer> MakeEmbed(const TorchLayerInput& input) {
  input.CheckNoGradient(0, "indices");
  const LabelRange range{.layer = input.description.name(),
                         .count = input.description.parameters[0].shape[0],
                         .samples = input.description.bottoms[0].shape.empty()
                                        ? 1
                                        : input.description.bottoms[0].shape[0],
                         .ignore = {},
                         .value = "index",
                         .counted = "rows"};
  return MakeAutogradLayer(
      input,
      [range](const Pass& pass, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        const at::Tensor rows = at::embedding(parameters[0], ToIndices(range, bottoms[0], pass));
        return {parameters.size() > 1 ? rows.add(parameters[1]) : rows};
      });
}

bool IsScaleOfChannels(const LayerDescription& layer) {
  const int given = layer.parameter.scale_param().axis();
  const auto axes = static_cast<int>(layer.bottoms[0].shape.size());
  return layer.bottoms.size() == 1 && (given < 0 ? given + axes : given) == 1 &&
         layer.parameters[0].shape.size() == 1;
}

// The bottom times a scale, plus a bias: parameters, the scale also a second bottom.
std::unique_ptr<TorchLayer> MakeScale(const TorchLayerInput& input) {
  const LayerDescription& layer = input.description;
  const bool learned = layer.bottoms.size() == 1;
  const bool with_bias = layer.parameter.scale_param().bias_term();
  const int axis = input.Axis(layer.parameter.scale_param().axis());
  if (IsScaleOfChannels(layer)) return std::make_unique<ChannelScale>(input);
  const Shape spread = SpreadOver(
      layer.bottoms[0].shape, learned ? layer.parameters[0].shape : layer.bottoms[1].shape, axis);
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        const at::Tensor scale = (learned ? parameters[0] : bottoms[1]).reshape(spread);
        if (!with_bias) return {bottoms[0].mul(scale)};
        return {at::addcmul(parameters.back().view(spread), bottoms[0], scale)};
      });
}

std::unique_ptr<TorchLayer> MakeBias(const TorchLayerInput& input) {
  const LayerDescription& layer = input.description;
  const bool learned = layer.bottoms.size() == 1;
  const Shape spread = SpreadOver(layer.bottoms[0].shape,
                                  learned ? layer.parameters[0].shape : layer.bottoms[1].shape,
                                  input.Axis(layer.parameter.bias_param().axis()));
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        return {bottoms[0].add((learned ? parameters[0] : bottoms[1]).reshape(spread))};
      });
}

// The top is the parameter.
std::unique_ptr<TorchLayer> MakeParameter(const TorchLayerInput& input) {
  return MakeAutogradLayer(input,
                           [](const Pass&, const Tensors&, const Tensors& parameters) -> Tensors {
                             return {parameters[0].alias()};
                           });
}

}  // namespace poseidon
