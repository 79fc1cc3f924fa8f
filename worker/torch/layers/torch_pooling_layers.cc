// Layers that slide windows over images and have no parameters.
#include <ATen/ops/arange.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool2d_backward.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool2d_with_indices.h>
#include <ATen/ops/max_pool2d_with_indices_backward.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/square.h>
#include <ATen/ops/where.h>

#include <array>
#include <limits>
#include <tuple>

#include "caffe_adapter/net/sliding_window.h"
#include "core/random.h"
#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/layers/torch_random.h"

namespace poseidon {
namespace {

using Directions = std::array<int64_t, 2>;  // height, width

struct Window {
  Directions kernel;
  Directions stride;
  Directions pad;
  bool round_up;  // how many windows there are, where they do not fit evenly
};

Window ToWindow(const LayerDescription& layer) {
  const caffe::PoolingParameter& p = layer.parameter.pooling_param();
  const SlidingWindow w = PoolingWindow(p, layer.bottoms[0].shape);
  return {
      {w.kernel[0], w.kernel[1]}, {w.stride[0], w.stride[1]}, {w.pad[0], w.pad[1]}, RoundsUp(p)};
}

at::Tensor MaxPool(const at::Tensor& bottom, const Window& w) {
  return at::max_pool2d(bottom, w.kernel, w.stride, w.pad, {1, 1}, w.round_up);
}

// The maxima and where each is in its image: row * width + column.
struct Maxima {
  at::Tensor values;
  at::Tensor places;
};

Maxima MaxPoolWithPlaces(const at::Tensor& bottom, const Window& w) {
  Maxima maxima;
  std::tie(maxima.values, maxima.places) =
      at::max_pool2d_with_indices(bottom, w.kernel, w.stride, w.pad, {1, 1}, w.round_up);
  return maxima;
}

// Like Caffe's, the mean is over the part of the window that is inside the padded image.
at::Tensor MeanPool(const at::Tensor& bottom, const Window& w) {
  return at::avg_pool2d(bottom, w.kernel, w.stride, w.pad, w.round_up, /*count_include_pad=*/true);
}

// --- Padding of more than libtorch pools with. ---

// libtorch pools with a padding of up to half a kernel. For more, the image is padded first: at the
// front by the padding, at the back as far as the last window reaches (or cut off after it).
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

at::Tensor PadWithLowest(const at::Tensor& bottom, const WidePadding& padding) {
  return at::constant_pad_nd(bottom, padding.extents, -std::numeric_limits<double>::infinity());
}

// A maximum is never in the padding, since no window is.
at::Tensor PlacesBeforePadding(const at::Tensor& places, const WidePadding& padding,
                               int64_t width) {
  const auto [left, right, top, below] = padding.extents;
  const int64_t padded_width = left + width + right;
  const at::Tensor row = places.div(padded_width, "floor").sub_(top);
  const at::Tensor column = places.remainder(padded_width).sub_(left);
  return row.mul_(width).add_(column);
}

// The mean over whole windows, rescaled where a window reaches beyond the padding that counts.
TensorFunction WideMeanPool(const WidePadding& padding, const Window& w, const Shape& bottom,
                            at::Device device) {
  const at::Tensor inside = at::ones({1, 1, bottom[2] + 2 * w.pad[0], bottom[3] + 2 * w.pad[1]},
                                     at::TensorOptions(at::kDouble).device(device));
  const auto [left, right, top, below] = padding.extents;
  const std::array<int64_t, 4> beyond = {0, right - left, 0, below - top};
  const at::Tensor part = MeanPool(at::constant_pad_nd(inside, beyond, 0), padding.window);
  return [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    const at::Tensor padded = at::constant_pad_nd(bottoms[0], padding.extents, 0);
    return {MeanPool(padded, padding.window).div(part.to(padded.options()))};
  };
}

// --- The methods. ---

TensorFunction MaxPoolFunction(const LayerDescription& layer, const Window& window) {
  const Shape& bottom = layer.bottoms[0].shape;
  const bool wide = NeedsWidePadding(window);
  const WidePadding padding = ToWidePadding(window, bottom, layer.tops[0].shape);
  const Window inner = wide ? padding.window : window;
  if (layer.tops.size() == 1) {
    return [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
      return {MaxPool(wide ? PadWithLowest(bottoms[0], padding) : bottoms[0], inner)};
    };
  }
  return [=, width = bottom[3]](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    Maxima maxima =
        MaxPoolWithPlaces(wide ? PadWithLowest(bottoms[0], padding) : bottoms[0], inner);
    if (wide) maxima.places = PlacesBeforePadding(maxima.places, padding, width);
    return {maxima.values, maxima.places.to(maxima.values.scalar_type())};
  };
}

TensorFunction MeanPoolFunction(const TorchLayerInput& input, const Window& window) {
  if (NeedsWidePadding(window)) {
    const LayerDescription& layer = input.description;
    const Shape& bottom = layer.bottoms[0].shape;
    return WideMeanPool(ToWidePadding(window, bottom, layer.tops[0].shape), window, bottom,
                        input.device);
  }
  return [window](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    return {MeanPool(bottoms[0], window)};
  };
}

// The values of each window, row by row, along the last axis; zero beyond the image.
at::Tensor WindowValues(const at::Tensor& bottom, const WidePadding& padding, const Shape& top) {
  const Window& w = padding.window;
  return at::constant_pad_nd(bottom, padding.extents, 0)
      .unfold(2, w.kernel[0], w.stride[0])
      .unfold(3, w.kernel[1], w.stride[1])
      .reshape({top[0], top[1], top[2], top[3], -1});
}

// Zeiler, Fergus: Stochastic pooling for regularization of deep convolutional neural networks,
// ICLR 2013, section 3.1: each value is chosen with a probability proportional to it. They must not
// be negative, so they come from a ReLU.
TensorFunction StochasticPool(const TorchLayerInput& input, const Window& window) {
  const Shape top = input.description.tops[0].shape;
  const WidePadding padding = ToWidePadding(window, input.description.bottoms[0].shape, top);
  return
      [=, seed = input.seed](const Pass& pass, const Tensors& bottoms, const Tensors&) -> Tensors {
        const at::Tensor values = WindowValues(bottoms[0], padding, top);
        const at::Tensor sums = at::cumsum(values.detach(), 4);
        const at::Tensor draws = at::rand(top, MakeGenerator(values, seed, pass.iteration),
                                          values.options().requires_grad(false));
        const at::Tensor threshold = sums.select(4, -1).mul(draws).unsqueeze(4);
        // The first whose sum reaches the threshold: as many are before it as have less.
        // Of values that are negative none may, and no place beyond the window is a value's.
        const at::Tensor chosen =
            sums.lt(threshold).sum(4, /*keepdim=*/true).clamp_max(values.size(4) - 1);
        return {at::gather(values, 4, chosen).squeeze(4)};
      };
}

// Section 3.2: the expectation, zero where all values are.
TensorFunction ExpectedPool(const Window& window) {
  return [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
    // Of squares and of values alike, the mean has the same divisor.
    const at::Tensor squares = MeanPool(at::square(bottoms[0]), window);
    const at::Tensor sums = MeanPool(bottoms[0], window);
    const at::Tensor positive = sums.gt(0);
    return {squares.div(at::where(positive, sums, 1)).mul(positive)};
  };
}

// --- Layers that find their gradients themselves, which is the usual case. ---

std::unique_ptr<TorchLayer> MakeMaxPool(const TorchLayerInput& input, const Window& w) {
  const bool with_places = input.description.tops.size() > 1;
  return MakeLayerWithGradient(
      input,
      [=](const Pass&, const Tensors& bottoms) -> Computed {
        const Maxima maxima = MaxPoolWithPlaces(bottoms[0], w);
        Computed computed = {{maxima.values}, {bottoms[0], maxima.places}};
        if (with_places) computed.tops.push_back(maxima.places.to(maxima.values.scalar_type()));
        return computed;
      },
      [w](const Tensors& top_gradients, const Tensors& kept) -> Tensors {
        if (!top_gradients[0].defined()) return {at::Tensor()};  // places have none
        return {at::max_pool2d_with_indices_backward(top_gradients[0], kept[0], w.kernel, w.stride,
                                                     w.pad, {1, 1}, w.round_up, kept[1])};
      });
}

std::unique_ptr<TorchLayer> MakeMeanPool(const TorchLayerInput& input, const Window& w) {
  return MakeLayerWithGradient(
      input,
      [w](const Pass&, const Tensors& bottoms) -> Computed {
        return {{MeanPool(bottoms[0], w)}, {bottoms[0]}};
      },
      [w](const Tensors& top_gradients, const Tensors& kept) -> Tensors {
        return {at::avg_pool2d_backward(top_gradients[0], kept[0], w.kernel, w.stride, w.pad,
                                        w.round_up, /*count_include_pad=*/true,
                                        /*divisor_override=*/{})};
      });
}

// Of a Pooling layer; keeps nothing of its description.
TensorFunction PoolingFunction(const TorchLayerInput& input) {
  const LayerDescription& layer = input.description;
  const Window window = ToWindow(layer);
  switch (layer.parameter.pooling_param().pool()) {
    case caffe::PoolingParameter::AVE:
      return MeanPoolFunction(input, window);
    case caffe::PoolingParameter::STOCHASTIC:
      return layer.parameter.phase() == caffe::TRAIN ? StochasticPool(input, window)
                                                     : ExpectedPool(window);
    default:
      return MaxPoolFunction(layer, window);
  }
}

// A level of an SPP layer's pyramid. Its windows are as many in each direction.
TensorFunction LevelFunction(const TorchLayerInput& input, int level) {
  const Shape& bottom = input.description.bottoms[0].shape;
  LayerDescription pooling = input.description;
  pooling.parameter = PyramidLevel(input.description.parameter, bottom, level);
  const int64_t windows = int64_t{1} << level;
  pooling.tops[0].shape = {bottom[0], bottom[1], windows, windows};
  return PoolingFunction({.description = pooling,
                          .bottom_needs_gradient = input.bottom_needs_gradient,
                          .parameter_needs_gradient = {},
                          .seed = DeriveSeed(input.seed, static_cast<uint64_t>(level)),
                          .device = input.device});
}

}  // namespace

std::unique_ptr<TorchLayer> MakePooling(const TorchLayerInput& input) {
  const Window window = ToWindow(input.description);
  if (NeedsWidePadding(window)) return MakeAutogradLayer(input, PoolingFunction(input));
  switch (input.description.parameter.pooling_param().pool()) {
    case caffe::PoolingParameter::AVE:
      return MakeMeanPool(input, window);
    case caffe::PoolingParameter::MAX:
      return MakeMaxPool(input, window);
    default:
      return MakeAutogradLayer(input, PoolingFunction(input));
  }
}

// Each level flattened, one after the other, coarsest first; a single level keeps its axes.
std::unique_ptr<TorchLayer> MakeSpp(const TorchLayerInput& input) {
  const auto height = static_cast<int>(input.description.parameter.spp_param().pyramid_height());
  std::vector<TensorFunction> levels;
  for (int level = 0; level < height; ++level) levels.push_back(LevelFunction(input, level));
  if (height == 1) return MakeAutogradLayer(input, levels[0]);
  return MakeAutogradLayer(
      input,
      [levels](const Pass& pass, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        Tensors flat;
        for (const TensorFunction& level : levels) {
          flat.push_back(level(pass, bottoms, parameters)[0].flatten(1));
        }
        return {at::cat(flat, 1)};
      });
}

// Each place of the window becomes a channel: channels x kernel, then the places of the window on
// the image. In any number of directions: SelectIndices picks, direction by direction, the values
// under each place of the kernel.
std::unique_ptr<TorchLayer> MakeIm2col(const TorchLayerInput& input) {
  const caffe::ConvolutionParameter& p = input.description.parameter.convolution_param();
  const Shape& bottom = input.description.bottoms[0].shape;
  const Shape top = input.description.tops[0].shape;
  const int axis = input.Axis(p.axis());
  const int directions = static_cast<int>(bottom.size()) - axis - 1;
  const SlidingWindow window = ConvolutionWindow(p, directions);
  const int64_t outer = Count(bottom, 0, axis);

  Shape images = {outer};  // samples, channels, then directions
  images.insert(images.end(), bottom.begin() + axis, bottom.end());
  Shape split = {outer, bottom[axis]};  // each direction as kernel x places
  std::vector<int64_t> order = {0, 1};  // all kernels before all places
  std::vector<int64_t> padding;         // last direction first
  for (int i = 0; i < directions; ++i) {
    split.insert(split.end(), {window.kernel[i], top[axis + 1 + i]});
    order.push_back(2 + 2 * i);
    padding.insert(padding.begin(), {window.pad[i], window.pad[i]});
  }
  for (int i = 0; i < directions; ++i) order.push_back(3 + 2 * i);
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        at::Tensor picked = at::constant_pad_nd(bottoms[0].reshape(images), padding, 0);
        const auto numbers = picked.options().dtype(at::kLong).requires_grad(false);
        for (int i = 0; i < directions; ++i) {
          const at::Tensor kernel =
              at::arange(window.kernel[i], numbers).mul_(window.dilation[i]).unsqueeze(1);
          const at::Tensor places = at::arange(top[axis + 1 + i], numbers).mul_(window.stride[i]);
          picked = SelectIndices(picked, 2 + i, kernel.add(places).flatten());
        }
        return {picked.reshape(split).permute(order).reshape(top)};
      });
}

}  // namespace poseidon
