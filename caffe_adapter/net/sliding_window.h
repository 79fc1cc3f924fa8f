// The windows that Convolution, Deconvolution, Im2col and Pooling layers slide over images.
#pragma once

#include <cstdint>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// One number for each direction, outermost first: (height, width) of images.
struct SlidingWindow {
  std::vector<int64_t> kernel;
  std::vector<int64_t> stride;
  std::vector<int64_t> pad;
  std::vector<int64_t> dilation;
};

// A layer's fields, one value for all directions or one for each, whatever form they are written
// in. The fields must fit each other and the directions, as shape inference checks.
SlidingWindow ConvolutionWindow(const caffe::ConvolutionParameter& parameter, int directions);
SlidingWindow PoolingWindow(const caffe::PoolingParameter& parameter, const Shape& bottom);

// Whether there is one more window where they do not fit evenly: `round_mode`, or `ceil_mode` as
// forks of Caffe call it.
bool RoundsUp(const caffe::PoolingParameter& parameter);

// The Pooling layer that computes one level of an SPP layer's pyramid: it cuts each image into
// 2^level x 2^level windows that do not overlap, padded where they do not fit evenly. `level` is
// less than 31.
caffe::LayerParameter PyramidLevel(const caffe::LayerParameter& spp, const Shape& bottom,
                                   int level);

}  // namespace poseidon
