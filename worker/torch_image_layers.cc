// Layers on (num, channels, height, width) without parameters.
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/square.h>

#include <array>
#include <limits>

#include "worker/torch_layer.h"

namespace poseidon {
namespace {

using Directions = std::array<int64_t, 2>;  // height, width

struct Window {
  Directions kernel;
  Directions stride;
  Directions pad;
  bool round_up;  // how many windows there are, where they do not fit evenly
};

Window PoolingWindow(const LayerDescription& layer) {
  const caffe::PoolingParameter& p = layer.parameter.pooling_param();
  Window window{{p.kernel_size(), p.kernel_size()},
                {p.stride(), p.stride()},
                {p.pad(), p.pad()},
                p.round_mode() == caffe::PoolingParameter::CEIL};
  if (p.has_kernel_h()) window.kernel = {p.kernel_h(), p.kernel_w()};
  if (p.has_stride_h()) window.stride = {p.stride_h(), p.stride_w()};
  if (p.has_pad_h()) window.pad = {p.pad_h(), p.pad_w()};
  if (p.global_pooling()) {
    const Shape& bottom = layer.bottoms[0].shape;
    window.kernel = {bottom[2], bottom[3]};
  }
  return window;
}

at::Tensor MaxPool(const at::Tensor& bottom, const Window& w) {
  return at::max_pool2d(bottom, w.kernel, w.stride, w.pad, {1, 1}, w.round_up);
}

// Like Caffe's, the mean is over the part of the window that is inside the padded image.
at::Tensor MeanPool(const at::Tensor& bottom, const Window& w) {
  return at::avg_pool2d(bottom, w.kernel, w.stride, w.pad, w.round_up, /*count_include_pad=*/true);
}

// at::max_pool2d and at::avg_pool2d take a padding of up to half a kernel. For more, the image is
// padded first: at the front by the padding, at the back as far as the last window reaches (or cut
// off after it).
struct WidePadding {
  std::array<int64_t, 4> extents;  // left, right, top, bottom
  Window window;                   // on the padded image
};

bool NeedsWidePadding(const Window& w) {
  return 2 * w.pad[0] > w.kernel[0] || 2 * w.pad[1] > w.kernel[1];
}

WidePadding ToWidePadding(const Window& w, const Shape& bottom, const Shape& top) {
  Directions back;
  for (int i = 0; i < 2; ++i) {
    back[i] = (top[2 + i] - 1) * w.stride[i] + w.kernel[i] - bottom[2 + i] - w.pad[i];
  }
  return {{w.pad[1], back[1], w.pad[0], back[0]}, {w.kernel, w.stride, {0, 0}, false}};
}

TensorFunction WideMaxPool(const WidePadding& padding) {
  return [padding](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    return {MaxPool(at::constant_pad_nd(bottoms[0], padding.extents, kLowest), padding.window)};
  };
}

// The mean over whole windows, rescaled where a window reaches beyond the padding that counts.
TensorFunction WideMeanPool(const WidePadding& padding, const Window& w, const Shape& bottom) {
  const at::Tensor inside =
      at::ones({1, 1, bottom[2] + 2 * w.pad[0], bottom[3] + 2 * w.pad[1]}, at::kDouble);
  const auto [left, right, top, below] = padding.extents;
  const std::array<int64_t, 4> beyond = {0, right - left, 0, below - top};
  const at::Tensor part = MeanPool(at::constant_pad_nd(inside, beyond, 0), padding.window);
  return [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    const at::Tensor padded = at::constant_pad_nd(bottoms[0], padding.extents, 0);
    return {MeanPool(padded, padding.window).div(part.to(padded.scalar_type()))};
  };
}

// --- Local response normalisation. ---

struct Lrn {
  int64_t size;
  double alpha;
  double beta;
  double k;
};

// The sum over `size` neighbouring channels, `size` odd, centred at each.
at::Tensor SumNeighbours(const at::Tensor& values, int64_t size) {
  at::Tensor sum = values.clone();
  const int64_t channels = values.size(1);
  for (int64_t distance = 1; distance <= size / 2 && distance < channels; ++distance) {
    const int64_t both = channels - distance;
    sum.narrow(1, 0, both).add_(values.narrow(1, distance, both));
    sum.narrow(1, distance, both).add_(values.narrow(1, 0, both));
  }
  return sum;
}

// top = bottom * scale^-beta with scale = k + alpha / size * (sum of squares over neighbouring
// channels). Autograd would go through each of the sums' steps; the gradient is again one such sum:
//   bottom' = top' * scale^-beta - 2 alpha beta / size * bottom * (sum of top' * top / scale)
class LrnAcrossChannels : public TorchLayer {
 public:
  explicit LrnAcrossChannels(const Lrn& lrn) : lrn_(lrn) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors&) override {
    bottom_ = bottoms[0];
    scale_ = SumNeighbours(at::square(bottom_), lrn_.size)
                 .mul_(lrn_.alpha / static_cast<double>(lrn_.size))
                 .add_(lrn_.k);
    power_ = at::pow(scale_, -lrn_.beta);
    return {bottom_.mul(power_)};
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    const at::Tensor direct = top_gradients[0].mul(power_);
    const at::Tensor ratio = direct.mul(bottom_).div_(scale_);
    const double factor = -2 * lrn_.alpha * lrn_.beta / static_cast<double>(lrn_.size);
    at::Tensor gradient = SumNeighbours(ratio, lrn_.size).mul_(bottom_).mul_(factor).add_(direct);
    bottom_.reset();
    scale_.reset();
    power_.reset();
    return {gradient};
  }

 private:
  Lrn lrn_;

  // Of the forward pass, until the backward pass.
  at::Tensor bottom_;
  at::Tensor scale_;
  at::Tensor power_;
};

// top = bottom * (1 + alpha * (mean of squares over a size x size window))^-beta.
TensorFunction LrnWithinChannel(const Lrn& lrn) {
  const int64_t pad = (lrn.size - 1) / 2;
  const Window window{{lrn.size, lrn.size}, {1, 1}, {pad, pad}, true};
  return [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    const at::Tensor mean = MeanPool(at::square(bottoms[0]), window);
    return {bottoms[0].mul(at::pow(mean.mul(lrn.alpha).add(1), -lrn.beta))};
  };
}

}  // namespace

std::unique_ptr<TorchLayer> MakePooling(const TorchLayerInput& input) {
  const Window window = PoolingWindow(input.description);
  const Shape& bottom = input.description.bottoms[0].shape;
  const Shape& top = input.description.tops[0].shape;
  for (int i = 0; i < 2; ++i) {
    if ((top[2 + i] - 1) * window.stride[i] >= bottom[2 + i] + window.pad[i]) {
      input.Fail("the last window is outside of the image, " + ToString(bottom) +
                 ": Caffe's rounding makes one more window than fits when the stride is larger "
                 "than the kernel; set round_mode: FLOOR");
    }
  }
  const bool max =
      input.description.parameter.pooling_param().pool() == caffe::PoolingParameter::MAX;
  if (NeedsWidePadding(window)) {
    const WidePadding padding = ToWidePadding(window, bottom, top);
    return MakeAutogradLayer(input,
                             max ? WideMaxPool(padding) : WideMeanPool(padding, window, bottom));
  }
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {max ? MaxPool(bottoms[0], window) : MeanPool(bottoms[0], window)};
      });
}

std::unique_ptr<TorchLayer> MakeLrn(const TorchLayerInput& input) {
  const caffe::LRNParameter& p = input.description.parameter.lrn_param();
  const Lrn lrn{p.local_size(), p.alpha(), p.beta(), p.k()};
  if (p.norm_region() == caffe::LRNParameter::WITHIN_CHANNEL) {
    return MakeAutogradLayer(input, LrnWithinChannel(lrn));
  }
  return std::make_unique<LrnAcrossChannels>(lrn);
}

}  // namespace poseidon
