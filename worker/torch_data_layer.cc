#include "worker/torch_data_layer.h"

#include <ATen/ops/from_blob.h>

namespace poseidon {
namespace {

// On CPUs, convolutions and pooling are up to several times as fast with the channels innermost,
// and a layer's tops take the memory format of its bottoms. So it is decided here for the whole
// net. One channel lies alike in both formats: only its stride tells.
at::Tensor ChannelsInnermost(float* data, const Shape& shape) {
  if (shape[1] > 1) return at::from_blob(data, shape).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t width = shape[3];
  const int64_t image = shape[2] * width;
  return at::from_blob(data, shape, {image, 1, width, 1});
}

// For at::from_blob, which takes no const memory. No layer writes to its bottoms.
float* Mutable(const std::vector<float>& values) { return const_cast<float*>(values.data()); }

}  // namespace

Tensors DataLayer::Forward(const Pass&, const Tensors&, const Tensors&) {
  Tensors tops = {ChannelsInnermost(Mutable(batch_->data), reader_.shape())};
  if (with_labels_) tops.push_back(at::from_blob(Mutable(batch_->labels), {reader_.shape()[0]}));
  return tops;
}

Tensors DataLayer::Backward(const Tensors&, const ParameterGradients&) { return {}; }

}  // namespace poseidon
