#include "caffe_adapter/net/sliding_window.h"

namespace poseidon {
namespace {

template <typename List>
std::vector<int64_t> ForEach(const List& list, int directions, int64_t missing) {
  std::vector<int64_t> values(directions, missing);
  for (int i = 0; i < directions && !list.empty(); ++i)
    values[i] = list.Get(list.size() > 1 ? i : 0);
  return values;
}

struct Cut {
  int64_t kernel;
  int64_t pad;
};

// Caffe's: half of what the windows are longer than the image is padding, rounded up.
Cut CutInto(int64_t windows, int64_t extent) {
  const int64_t kernel = (extent + windows - 1) / windows;
  return {kernel, (kernel * windows - extent + 1) / 2};
}

}  // namespace

SlidingWindow ConvolutionWindow(const caffe::ConvolutionParameter& p, int directions) {
  SlidingWindow window = {.kernel = ForEach(p.kernel_size(), directions, 0),
                          .stride = ForEach(p.stride(), directions, 1),
                          .pad = ForEach(p.pad(), directions, 0),
                          .dilation = ForEach(p.dilation(), directions, 1)};
  if (p.has_kernel_h() || p.has_kernel_w()) window.kernel = {p.kernel_h(), p.kernel_w()};
  if (p.has_stride_h() || p.has_stride_w()) window.stride = {p.stride_h(), p.stride_w()};
  if (p.has_pad_h() || p.has_pad_w()) window.pad = {p.pad_h(), p.pad_w()};
  return window;
}

SlidingWindow PoolingWindow(const caffe::PoolingParameter& p, const Shape& bottom) {
  SlidingWindow window = {.kernel = {p.kernel_size(), p.kernel_size()},
                          .stride = {p.stride(), p.stride()},
                          .pad = {p.pad(), p.pad()},
                          .dilation = {1, 1}};
  if (p.has_kernel_h()) window.kernel = {p.kernel_h(), p.kernel_w()};
  if (p.has_stride_h()) window.stride = {p.stride_h(), p.stride_w()};
  if (p.has_pad_h()) window.pad = {p.pad_h(), p.pad_w()};
  if (p.global_pooling()) window.kernel = {bottom[2], bottom[3]};
  return window;
}

bool RoundsUp(const caffe::PoolingParameter& p) {
  return p.has_ceil_mode() ? p.ceil_mode() : p.round_mode() == caffe::PoolingParameter::CEIL;
}

caffe::LayerParameter PyramidLevel(const caffe::LayerParameter& spp, const Shape& bottom,
                                   int level) {
  const int64_t windows = int64_t{1} << level;
  const Cut rows = CutInto(windows, bottom[2]);
  const Cut columns = CutInto(windows, bottom[3]);
  caffe::LayerParameter layer = spp;
  layer.clear_spp_param();
  layer.set_type("Pooling");
  caffe::PoolingParameter& p = *layer.mutable_pooling_param();
  // The methods have the same numbers.
  p.set_pool(static_cast<caffe::PoolingParameter::PoolMethod>(spp.spp_param().pool()));
  p.set_kernel_h(static_cast<uint32_t>(rows.kernel));
  p.set_kernel_w(static_cast<uint32_t>(columns.kernel));
  p.set_stride_h(static_cast<uint32_t>(rows.kernel));
  p.set_stride_w(static_cast<uint32_t>(columns.kernel));
  p.set_pad_h(static_cast<uint32_t>(rows.pad));
  p.set_pad_w(static_cast<uint32_t>(columns.pad));
  return layer;
}

}  // namespace poseidon
