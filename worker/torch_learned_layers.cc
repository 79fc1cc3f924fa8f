// Layers with parameters.
#include <ATen/ops/addmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include <array>
#include <utility>

#include "caffe_adapter/shape.h"
#include "worker/torch_layer.h"

namespace poseidon {
namespace {

using Directions = std::array<int64_t, 2>;  // height, width

// A field of convolution_param: a list of one value for both directions or one for each.
template <typename List>
Directions FromList(const List& list, int64_t missing) {
  if (list.empty()) return {missing, missing};
  return {static_cast<int64_t>(list.Get(0)), static_cast<int64_t>(list.Get(list.size() - 1))};
}

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
    rows_ = Count(bottom.shape, 0, axis < 0 ? axis + axes : axis);
    bottom_shape_ = bottom.shape;
    top_shape_ = input.description.tops[0].shape;
  }

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors& parameters) override {
    format_ = bottoms[0].suggest_memory_format();
    data_ = bottoms[0].reshape({rows_, -1});
    weights_ = OutputsByInputs(parameters[0]);
    at::Tensor top = parameters.size() > 1 ? at::addmm(parameters[1], data_, weights_.t())
                                           : at::mm(data_, weights_.t());
    return {top.view(top_shape_)};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    const at::Tensor top_gradient = top_gradients[0].reshape({rows_, -1});
    if (gradients.u.defined()) {
      gradients.u.copy_(top_gradient);
      gradients.v.copy_(data_);
    } else {
      WriteDense(top_gradient, gradients.blobs);
    }
    at::Tensor bottom_gradient;
    if (bottom_needs_gradient_) {
      // In the format of the bottom: the mean pooling below is ten times as slow otherwise.
      bottom_gradient = at::mm(top_gradient, weights_).view(bottom_shape_).contiguous(format_);
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
      at::Tensor weight_gradient = OutputsByInputs(blobs[0]);
      at::mm_out(weight_gradient, top_gradient.t(), data_);
    }
    if (blobs.size() > 1 && blobs[1].defined()) {
      at::Tensor bias_gradient = blobs[1];
      at::sum_out(bias_gradient, top_gradient, {0});
    }
  }

  bool bottom_needs_gradient_;
  bool transpose_;
  int64_t rows_;
  Shape bottom_shape_;
  Shape top_shape_;

  // Of the forward pass, until the backward pass.
  at::Tensor data_;
  at::Tensor weights_;
  at::MemoryFormat format_ = at::MemoryFormat::Contiguous;
};

}  // namespace

std::unique_ptr<TorchLayer> MakeConvolution(const TorchLayerInput& input) {
  const caffe::ConvolutionParameter& p = input.description.parameter.convolution_param();
  Directions stride = FromList(p.stride(), 1);
  Directions pad = FromList(p.pad(), 0);
  const Directions dilation = FromList(p.dilation(), 1);
  if (p.has_stride_h() || p.has_stride_w()) stride = {p.stride_h(), p.stride_w()};
  if (p.has_pad_h() || p.has_pad_w()) pad = {p.pad_h(), p.pad_w()};
  const int64_t group = p.group();
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        const at::Tensor bias = parameters.size() > 1 ? parameters[1] : at::Tensor();
        return {at::convolution(bottoms[0], parameters[0], bias, stride, pad, dilation,
                                /*transposed=*/false, /*output_padding=*/{0, 0}, group)};
      });
}

std::unique_ptr<TorchLayer> MakeInnerProduct(const TorchLayerInput& input) {
  return std::make_unique<InnerProduct>(input);
}

}  // namespace poseidon
