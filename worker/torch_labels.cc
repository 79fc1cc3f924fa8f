#include "worker/torch_labels.h"

#include <ATen/ops/nonzero.h>

#include <algorithm>

#include "core/error.h"
#include "worker/batch_reader.h"

namespace poseidon {
namespace {

std::string DescribeSample(int64_t sample, const Pass& pass) {
  return pass.data ? pass.data->DescribeSample(sample)
                   : "sample " + std::to_string(sample) + " of the batch";
}

}  // namespace

at::Tensor ToIndices(const LabelRange& range, const at::Tensor& values, const Pass& pass) {
  at::Tensor indices = values.detach().to(at::kLong);
  at::Tensor valid = indices.ge(0).logical_and_(indices.lt(range.count));
  if (range.ignore) valid.logical_or_(indices.eq(*range.ignore));
  if (valid.all().item<bool>()) return indices;
  const auto first = at::nonzero(valid.logical_not().flatten())[0].item<int64_t>();
  throw DataError(
      "layer \"" + range.layer + "\": the " + range.value + " of " +
      DescribeSample(first / std::max<int64_t>(1, indices.numel() / range.samples), pass) + " is " +
      std::to_string(indices.flatten()[first].item<int64_t>()) + "; the layer has " +
      range.counted + " 0 to " + std::to_string(range.count - 1));
}

}  // namespace poseidon
