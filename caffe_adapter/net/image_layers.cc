// Shapes of layers that slide a window, or take (num, channels, height, width).
#include <glog/logging.h>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/sliding_window.h"

namespace poseidon {
namespace {

void CheckImages(const LayerInput& input) {
  if (input.bottoms[0].size() != 4) {
    input.Fail("", "bottom \"" + input.layer.bottom(0) + "\" is " + ToString(input.bottoms[0]) +
                       "; expected num x channels x height x width");
  }
}

// Caffe's fields are unsigned, its extents are not.
constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();

void CheckRange(const LayerInput& input, const std::vector<int64_t>& extents, int64_t min,
                const std::string& parameter, const std::string& name) {
  for (const int64_t extent : extents) {
    if (extent >= min && extent <= kMaxExtent) continue;
    input.Fail(parameter + "." + name, name + " must be at least " + std::to_string(min) +
                                           (extent < min ? "" : " and less than 2^31"));
  }
}

void CheckWindow(const LayerInput& input, const SlidingWindow& window,
                 const std::string& parameter) {
  CheckRange(input, window.kernel, 1, parameter, "kernel_size");
  CheckRange(input, window.stride, 1, parameter, "stride");
  CheckRange(input, window.pad, 0, parameter, "pad");
  CheckRange(input, window.dilation, 1, parameter, "dilation");
}

// --- Convolution, Deconvolution and Im2col. ---

// Where the channels are, how many directions come after them, and the window over those.
struct Convolved {
  int axis;
  int directions;
  SlidingWindow window;
};

// One of pad, kernel_size, stride and dilation: a list, or a value for height and one for width.
struct DirectedField {
  std::string name;
  int values;     // in the list
  bool directed;  // NAME_h or NAME_w is written
};

void CheckField(const LayerInput& input, const DirectedField& field, int directions) {
  const std::string path = "convolution_param." + field.name;
  if (field.directed && field.values > 0) {
    input.Fail(path, field.name + " is given twice, with and without direction");
  }
  if (field.directed && directions != 2) {
    input.Fail("convolution_param", field.name + " for height and width needs a 2-D convolution; " +
                                        input.Bottom(0) + ", has " + std::to_string(directions) +
                                        " axes after the channels");
  }
  if (field.values > 1 && field.values != directions) {
    input.Fail(path, field.name + " has " + std::to_string(field.values) +
                         " values; expected 1 or one for each of " + std::to_string(directions) +
                         " directions");
  }
}

Convolved CheckConvolution(const LayerInput& input) {
  const caffe::ConvolutionParameter& p = input.layer.convolution_param();
  const int axis = input.Axis(p.axis(), "convolution_param.axis");
  const int directions = static_cast<int>(input.bottoms[0].size()) - axis - 1;
  // libtorch convolves in up to 3; a net that convolves in none is a mistake, not a fully connected
  // layer.
  if (directions < 1 || directions > 3) {
    input.Fail("", "bottom \"" + input.layer.bottom(0) + "\" is " + ToString(input.bottoms[0]) +
                       "; expected num x channels x height x width, or 1 to 3 axes after axis " +
                       std::to_string(axis) + ", the channels");
  }
  CheckField(input, {"kernel_size", p.kernel_size_size(), p.has_kernel_h() || p.has_kernel_w()},
             directions);
  CheckField(input, {"stride", p.stride_size(), p.has_stride_h() || p.has_stride_w()}, directions);
  CheckField(input, {"pad", p.pad_size(), p.has_pad_h() || p.has_pad_w()}, directions);
  CheckField(input, {"dilation", p.dilation_size(), false}, directions);
  const SlidingWindow window = ConvolutionWindow(p, directions);
  CheckWindow(input, window, "convolution_param");
  return {axis, directions, window};
}

int64_t Reach(const SlidingWindow& window, int direction) {
  return window.dilation[direction] * (window.kernel[direction] - 1) + 1;
}

// How many places the window has in a direction of the bottom.
int64_t ConvolvedExtent(const LayerInput& input, const Convolved& convolved, int direction) {
  const SlidingWindow& window = convolved.window;
  const int64_t extent = input.bottoms[0][convolved.axis + 1 + direction];
  const int64_t room = extent + 2 * window.pad[direction] - Reach(window, direction);
  if (room < 0) {
    input.Fail("convolution_param.kernel_size",
               "the kernel is larger than " + input.Bottom(0) + ", with its padding");
  }
  return room / window.stride[direction] + 1;
}

// The extent that has as many places for the window as the bottom has values.
int64_t DeconvolvedExtent(const LayerInput& input, const Convolved& convolved, int direction) {
  const SlidingWindow& window = convolved.window;
  const int64_t extent = input.bottoms[0][convolved.axis + 1 + direction];
  const int64_t top = window.stride[direction] * (extent - 1) + Reach(window, direction) -
                      2 * window.pad[direction];
  if (top < 1) {
    input.Fail("convolution_param.pad",
               "pad leaves nothing of what the kernel makes from " + input.Bottom(0));
  }
  return top;
}

void CheckChannels(const LayerInput& input, int axis) {
  const caffe::ConvolutionParameter& p = input.layer.convolution_param();
  const int64_t channels = input.bottoms[0][axis];
  if (p.num_output() == 0) {
    input.Fail("convolution_param.num_output", "num_output must be at least 1");
  }
  if (p.group() == 0 || channels % p.group() != 0 || p.num_output() % p.group() != 0) {
    input.Fail("convolution_param.group",
               "group is " + std::to_string(p.group()) + "; it must divide the bottom's " +
                   std::to_string(channels) + " channels and num_output, " +
                   std::to_string(p.num_output()));
  }
}

// Each bottom has a top of its own, made by the same weights.
void CheckSeveral(const LayerInput& input) {
  if (input.layer.top_size() != input.layer.bottom_size()) {
    input.Fail("", "has " + std::to_string(input.layer.bottom_size()) + " bottoms and " +
                       std::to_string(input.layer.top_size()) + " tops; expected as many");
  }
  for (int i = 1; i < input.layer.bottom_size(); ++i) {
    if (input.bottoms[i] != input.bottoms[0]) {
      input.Fail("bottom." + std::to_string(i),
                 input.Bottom(i) + ", has another shape than " + input.Bottom(0));
    }
  }
}

LayerShapes InferConvolutionOrInverse(const LayerInput& input, bool inverse) {
  CheckSeveral(input);
  const Convolved convolved = CheckConvolution(input);
  CheckChannels(input, convolved.axis);
  const caffe::ConvolutionParameter& p = input.layer.convolution_param();
  const Shape& bottom = input.bottoms[0];
  const int64_t channels = bottom[convolved.axis];
  const int64_t outputs = p.num_output();
  Shape top(bottom.begin(), bottom.begin() + convolved.axis);
  top.push_back(outputs);
  Shape weights = {inverse ? channels : outputs, (inverse ? outputs : channels) / p.group()};
  for (int i = 0; i < convolved.directions; ++i) {
    top.push_back(inverse ? DeconvolvedExtent(input, convolved, i)
                          : ConvolvedExtent(input, convolved, i));
    weights.push_back(convolved.window.kernel[i]);
  }
  LayerShapes shapes{std::vector<Shape>(input.layer.top_size(), top), {}};
  shapes.parameters.push_back({weights, p.weight_filler()});
  if (p.bias_term()) shapes.parameters.push_back({{outputs}, p.bias_filler()});
  return shapes;
}

// --- Pooling. ---

void CheckPooling(const LayerInput& input) {
  const caffe::PoolingParameter& p = input.layer.pooling_param();
  const bool one = p.has_kernel_size();
  const bool two = p.has_kernel_h() && p.has_kernel_w();
  if (p.global_pooling() && (one || p.has_kernel_h() || p.has_kernel_w())) {
    input.Fail("pooling_param", "global_pooling takes no kernel size");
  }
  if (!p.global_pooling() && one == two) {
    input.Fail("pooling_param", "give either kernel_size or both kernel_h and kernel_w");
  }
  if (p.has_pad_h() != p.has_pad_w() || (p.has_pad() && p.has_pad_h())) {
    input.Fail("pooling_param", "give either pad or both pad_h and pad_w");
  }
  if (p.has_stride_h() != p.has_stride_w() || (p.has_stride() && p.has_stride_h())) {
    input.Fail("pooling_param", "give either stride or both stride_h and stride_w");
  }
  if (p.has_ceil_mode() && p.has_round_mode()) {
    input.Fail("pooling_param.ceil_mode", "give round_mode or ceil_mode, not both");
  }
  if (p.has_ceil_mode()) {
    LOG_FIRST_N(WARNING, 1) << "layer \"" << input.layer.name()
                            << "\" has ceil_mode, a field of forks of Caffe; taken as round_mode: "
                            << (p.ceil_mode() ? "CEIL" : "FLOOR");
  }
  if (input.layer.top_size() > 1 && p.pool() != caffe::PoolingParameter::MAX) {
    input.Fail("top.1", "only MAX pooling has a second top, the places of the maxima");
  }
}

SlidingWindow CheckedPoolingWindow(const LayerInput& input) {
  const caffe::PoolingParameter& p = input.layer.pooling_param();
  SlidingWindow window = PoolingWindow(p, input.bottoms[0]);
  CheckWindow(input, window, "pooling_param");
  const bool padded = window.pad[0] + window.pad[1] > 0;
  if (window.pad[0] >= window.kernel[0] || window.pad[1] >= window.kernel[1]) {
    input.Fail("pooling_param.pad", "pad must be smaller than the kernel");
  }
  if (p.global_pooling() && (padded || window.stride[0] * window.stride[1] != 1)) {
    input.Fail("pooling_param", "global_pooling takes pad 0 and stride 1 only");
  }
  if (padded && p.pool() == caffe::PoolingParameter::STOCHASTIC) {
    input.Fail("pooling_param.pad", "STOCHASTIC pooling takes no padding");
  }
  return window;
}

// Caffe's count of windows: rounded up, and without a last one that would start in the padding.
int64_t PooledExtent(const LayerInput& input, const SlidingWindow& window, int direction) {
  const bool up = RoundsUp(input.layer.pooling_param());
  const int64_t extent = input.bottoms[0][2 + direction];
  const int64_t stride = window.stride[direction];
  const int64_t pad = window.pad[direction];
  const int64_t room = extent + 2 * pad - window.kernel[direction];
  // C++ divides towards zero: of a negative number, that is up.
  const int64_t steps_up = (room > 0 ? room + stride - 1 : room) / stride;
  const int64_t steps_down = room < 0 ? -1 : room / stride;
  int64_t pooled = (up ? steps_up : steps_down) + 1;
  const bool padded = window.pad[0] + window.pad[1] > 0;
  if (padded && (pooled - 1) * stride >= extent + pad) --pooled;
  if (pooled < 1) {
    input.Fail("pooling_param.kernel_size",
               "the kernel is larger than " + input.Bottom(0) + ", with its padding");
  }
  if ((pooled - 1) * stride >= extent + pad) {
    input.Fail("pooling_param.stride",
               "the last window is outside of " + input.Bottom(0) +
                   ": rounding up makes one more window than fits when the stride is larger than "
                   "the kernel; set round_mode: FLOOR");
  }
  return pooled;
}

}  // namespace

LayerShapes InferConvolution(const LayerInput& input) {
  return InferConvolutionOrInverse(input, /*inverse=*/false);
}

LayerShapes InferDeconvolution(const LayerInput& input) {
  return InferConvolutionOrInverse(input, /*inverse=*/true);
}

LayerShapes InferIm2col(const LayerInput& input) {
  const Convolved convolved = CheckConvolution(input);
  Shape top = input.bottoms[0];
  for (int i = 0; i < convolved.directions; ++i) {
    int64_t& channels = top[convolved.axis];
    channels *= convolved.window.kernel[i];
    if (channels > kMaxExtent) input.Fail("", "the top has more than 2^31 - 1 channels");
    top[convolved.axis + 1 + i] = ConvolvedExtent(input, convolved, i);
  }
  return {{top}, {}};
}

LayerShapes InferPooling(const LayerInput& input) {
  CheckImages(input);
  CheckPooling(input);
  const SlidingWindow window = CheckedPoolingWindow(input);
  const Shape& bottom = input.bottoms[0];
  const Shape top = {bottom[0], bottom[1], PooledExtent(input, window, 0),
                     PooledExtent(input, window, 1)};
  return {std::vector<Shape>(input.layer.top_size(), top), {}};
}

// A level may be too fine for its image: then whole windows would lie in the padding, and Caffe
// ends there, too.
LayerShapes InferSpp(const LayerInput& input) {
  CheckImages(input);
  const Shape& bottom = input.bottoms[0];
  const uint32_t height = input.layer.spp_param().pyramid_height();
  if (height == 0) input.Fail("spp_param.pyramid_height", "pyramid_height must be at least 1");
  int64_t outputs = 0;
  for (uint32_t level = 0; level < height; ++level) {
    const auto too_many = [&] {
      input.Fail("spp_param.pyramid_height",
                 "level " + std::to_string(level) + " cuts images into 2^" + std::to_string(level) +
                     " rows and columns, too many for " + input.Bottom(0));
    };
    if (level >= 31) too_many();
    const caffe::LayerParameter pooling =
        PyramidLevel(input.layer, bottom, static_cast<int>(level));
    const SlidingWindow window = PoolingWindow(pooling.pooling_param(), bottom);
    if (window.pad[0] >= window.kernel[0] || window.pad[1] >= window.kernel[1]) too_many();
    if (window.pad[0] + window.pad[1] > 0 &&
        pooling.pooling_param().pool() == caffe::PoolingParameter::STOCHASTIC) {
      input.Fail("spp_param.pool", "STOCHASTIC pooling takes no padding, but level " +
                                       std::to_string(level) + " pads " + input.Bottom(0));
    }
    outputs += bottom[1] << (2 * level);
  }
  // A single level is not flattened.
  if (height == 1) return {{{bottom[0], outputs, 1, 1}}, {}};
  return {{{bottom[0], outputs}}, {}};
}

LayerShapes InferLrn(const LayerInput& input) {
  CheckImages(input);
  if (input.layer.lrn_param().local_size() % 2 == 0) {
    input.Fail("lrn_param.local_size", "local_size must be odd");
  }
  return {{input.bottoms[0]}, {}};
}

LayerShapes InferMvn(const LayerInput& input) {
  Shape top = input.bottoms[0];
  if (top.size() > 4) {
    input.Fail("", "bottom \"" + input.layer.bottom(0) + "\" is " + ToString(top) +
                       "; expected at most 4 axes");
  }
  top.resize(4, 1);  // what Caffe makes of fewer
  return {{top}, {}};
}

}  // namespace poseidon
