// Shapes of layers that slide a window over (num, channels, height, width).
#include <functional>
#include <optional>

#include "caffe_adapter/layer_types.h"

namespace poseidon {
namespace {

struct Extent {
  int64_t height;
  int64_t width;
};

void CheckImages(const LayerInput& input) {
  if (input.bottoms[0].size() != 4) {
    input.Fail("", "bottom \"" + input.layer.bottom(0) + "\" is " + ToString(input.bottoms[0]) +
                       "; expected num x channels x height x width");
  }
}

void CheckPositive(const LayerInput& input, const Extent& extent, const std::string& field,
                   const std::string& name) {
  if (extent.height < 1 || extent.width < 1) input.Fail(field, name + " must be at least 1");
}

// Convolution's pad, kernel_size, stride and dilation: a list of one value for both directions or
// one for each, or else NAME_h and NAME_w.
template <typename List>
Extent ListExtent(const LayerInput& input, const std::string& name, const List& list,
                  std::optional<Extent> directions, int64_t missing) {
  if (directions) {
    if (!list.empty()) {
      input.Fail("convolution_param", name + " is given twice, with and without direction");
    }
    return *directions;
  }
  if (list.size() > 2) {
    input.Fail("convolution_param", name + " has " + std::to_string(list.size()) +
                                        " values; expected 1 or 2 (only 2-D convolution is "
                                        "supported)");
  }
  if (list.empty()) return {missing, missing};
  return {static_cast<int64_t>(list.Get(0)), static_cast<int64_t>(list.Get(list.size() - 1))};
}

struct Window {
  Extent kernel;
  Extent stride;
  Extent pad;
  Extent dilation;
};

Window ConvolutionWindow(const LayerInput& input) {
  const caffe::ConvolutionParameter& p = input.layer.convolution_param();
  using Directions = std::optional<Extent>;
  const auto kernel = p.has_kernel_h() || p.has_kernel_w()
                          ? Directions({p.kernel_h(), p.kernel_w()})
                          : Directions();
  const auto stride = p.has_stride_h() || p.has_stride_w()
                          ? Directions({p.stride_h(), p.stride_w()})
                          : Directions();
  const auto pad =
      p.has_pad_h() || p.has_pad_w() ? Directions({p.pad_h(), p.pad_w()}) : Directions();
  const Window window{ListExtent(input, "kernel_size", p.kernel_size(), kernel, 0),
                      ListExtent(input, "stride", p.stride(), stride, 1),
                      ListExtent(input, "pad", p.pad(), pad, 0),
                      ListExtent(input, "dilation", p.dilation(), std::nullopt, 1)};
  CheckPositive(input, window.kernel, "convolution_param", "kernel_size");
  CheckPositive(input, window.stride, "convolution_param", "stride");
  CheckPositive(input, window.dilation, "convolution_param", "dilation");
  return window;
}

int64_t ConvolvedExtent(int64_t extent, int64_t kernel, int64_t stride, int64_t pad,
                        int64_t dilation) {
  const int64_t reach = dilation * (kernel - 1) + 1;
  const int64_t room = extent + 2 * pad - reach;
  return room < 0 ? 0 : room / stride + 1;
}

void CheckFits(const LayerInput& input, const Extent& top, const std::string& field) {
  if (top.height < 1 || top.width < 1) {
    input.Fail(field, "the kernel is larger than bottom \"" + input.layer.bottom(0) + "\", " +
                          ToString(input.bottoms[0]) + ", with its padding");
  }
}

void CheckChannels(const LayerInput& input) {
  const caffe::ConvolutionParameter& p = input.layer.convolution_param();
  const int64_t channels = input.bottoms[0][1];
  if (p.num_output() == 0) input.Fail("convolution_param", "num_output must be at least 1");
  if (p.group() == 0 || channels % p.group() != 0 || p.num_output() % p.group() != 0) {
    input.Fail("convolution_param.group",
               "group is " + std::to_string(p.group()) + "; it must divide the bottom's " +
                   std::to_string(channels) + " channels and num_output, " +
                   std::to_string(p.num_output()));
  }
}

// kernel_size or kernel_h and kernel_w.
Extent PoolingKernel(const LayerInput& input) {
  const caffe::PoolingParameter& p = input.layer.pooling_param();
  const bool one = p.has_kernel_size();
  const bool two = p.has_kernel_h() && p.has_kernel_w();
  if (p.global_pooling()) {
    if (one || p.has_kernel_h() || p.has_kernel_w()) {
      input.Fail("pooling_param", "global_pooling takes no kernel size");
    }
    return {input.bottoms[0][2], input.bottoms[0][3]};
  }
  if (one == two) {
    input.Fail("pooling_param", "give either kernel_size or both kernel_h and kernel_w");
  }
  return one ? Extent{p.kernel_size(), p.kernel_size()} : Extent{p.kernel_h(), p.kernel_w()};
}

Window PoolingWindow(const LayerInput& input) {
  const caffe::PoolingParameter& p = input.layer.pooling_param();
  if (p.has_pad_h() != p.has_pad_w() || (p.has_pad() && p.has_pad_h())) {
    input.Fail("pooling_param", "give either pad or both pad_h and pad_w");
  }
  if (p.has_stride_h() != p.has_stride_w() || (p.has_stride() && p.has_stride_h())) {
    input.Fail("pooling_param", "give either stride or both stride_h and stride_w");
  }
  const Window window{
      PoolingKernel(input),
      p.has_stride_h() ? Extent{p.stride_h(), p.stride_w()} : Extent{p.stride(), p.stride()},
      p.has_pad_h() ? Extent{p.pad_h(), p.pad_w()} : Extent{p.pad(), p.pad()},
      {1, 1}};
  CheckPositive(input, window.kernel, "pooling_param", "kernel_size");
  CheckPositive(input, window.stride, "pooling_param", "stride");
  if (window.pad.height >= window.kernel.height || window.pad.width >= window.kernel.width) {
    input.Fail("pooling_param", "pad must be smaller than the kernel");
  }
  if (p.global_pooling() && (window.pad.height + window.pad.width != 0 ||
                             window.stride.height * window.stride.width != 1)) {
    input.Fail("pooling_param", "global_pooling takes pad 0 and stride 1 only");
  }
  return window;
}

// Caffe rounds up, and leaves out a last window that would start in the padding.
int64_t PooledExtent(int64_t extent, int64_t kernel, int64_t stride, int64_t pad, bool padded,
                     bool round_up) {
  const int64_t room = extent + 2 * pad - kernel;
  if (room < 0) return 0;
  int64_t pooled = (room + (round_up ? stride - 1 : 0)) / stride + 1;
  if (padded && (pooled - 1) * stride >= extent + pad) --pooled;
  return pooled;
}

}  // namespace

LayerShapes InferConvolution(const LayerInput& input) {
  CheckImages(input);
  CheckChannels(input);
  const caffe::ConvolutionParameter& p = input.layer.convolution_param();
  if (p.axis() != 1 && p.axis() != -3) {
    input.Fail("convolution_param.axis", "only axis 1, the channels, is supported");
  }
  const Window w = ConvolutionWindow(input);
  const Shape& bottom = input.bottoms[0];
  const Extent top{
      ConvolvedExtent(bottom[2], w.kernel.height, w.stride.height, w.pad.height, w.dilation.height),
      ConvolvedExtent(bottom[3], w.kernel.width, w.stride.width, w.pad.width, w.dilation.width)};
  CheckFits(input, top, "convolution_param");
  LayerShapes shapes{{{bottom[0], p.num_output(), top.height, top.width}}, {}};
  shapes.parameters.push_back(
      {{p.num_output(), bottom[1] / p.group(), w.kernel.height, w.kernel.width},
       p.weight_filler()});
  if (p.bias_term()) shapes.parameters.push_back({{p.num_output()}, p.bias_filler()});
  return shapes;
}

LayerShapes InferPooling(const LayerInput& input) {
  CheckImages(input);
  const caffe::PoolingParameter& p = input.layer.pooling_param();
  if (p.pool() == caffe::PoolingParameter::STOCHASTIC) {
    input.Fail("pooling_param.pool", "STOCHASTIC is not supported; MAX and AVE are");
  }
  const Window w = PoolingWindow(input);
  const Shape& bottom = input.bottoms[0];
  const bool padded = w.pad.height + w.pad.width > 0;
  const bool round_up = p.round_mode() == caffe::PoolingParameter::CEIL;
  const Extent top{
      PooledExtent(bottom[2], w.kernel.height, w.stride.height, w.pad.height, padded, round_up),
      PooledExtent(bottom[3], w.kernel.width, w.stride.width, w.pad.width, padded, round_up)};
  CheckFits(input, top, "pooling_param");
  return {{{bottom[0], bottom[1], top.height, top.width}}, {}};
}

LayerShapes InferLrn(const LayerInput& input) {
  CheckImages(input);
  if (input.layer.lrn_param().local_size() % 2 == 0) {
    input.Fail("lrn_param.local_size", "local_size must be odd");
  }
  return {{input.bottoms[0]}, {}};
}

}  // namespace poseidon
