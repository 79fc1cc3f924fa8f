#include "worker/torch/layers/torch_loss_normalizer.h"

#include <ATen/ops/scalar_tensor.h>

#include <algorithm>

namespace poseidon {

caffe::LossParameter::NormalizationMode NormalizationMode(
    const caffe::LossParameter& parameter, caffe::LossParameter::NormalizationMode missing) {
  if (parameter.has_normalization()) return parameter.normalization();
  if (!parameter.has_normalize()) return missing;
  return parameter.normalize() ? caffe::LossParameter::VALID : caffe::LossParameter::BATCH_SIZE;
}

at::Tensor LossNormalizer(caffe::LossParameter::NormalizationMode mode, int64_t outer,
                          int64_t inner, const at::Tensor& counted,
                          const at::TensorOptions& options) {
  switch (mode) {
    case caffe::LossParameter::NONE:
      return at::scalar_tensor(1, options);
    case caffe::LossParameter::BATCH_SIZE:
      return at::scalar_tensor(std::max<int64_t>(1, outer), options);
    case caffe::LossParameter::VALID:
      return counted.sum().clamp_min(1).to(options);
    default:
      return at::scalar_tensor(std::max<int64_t>(1, outer * inner), options);
  }
}

}  // namespace poseidon
