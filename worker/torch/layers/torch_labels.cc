#include "worker/torch/layers/torch_labels.h"

#include <ATen/ops/nonzero.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "worker/engine/batch_reader.h"

namespace poseidon {
namespace {

// Where a value comes from. Of the samples that a Filter layer has let pass, only their number is
// known. A Reshape layer may have divided a record's values among several samples of the net's.
std::string DescribePlace(const LabelRange& range, int64_t place, const at::Tensor& indices,
                          const Pass& pass) {
  if (indices.dim() > 0 && indices.size(0) < range.samples) {
    return "sample " + std::to_string(place / (indices.numel() / indices.size(0))) +
           " of those that a Filter layer lets pass";
  }
  const auto part_of = [&](int64_t whole) {
    return place / std::max<int64_t>(1, indices.numel() / whole);
  };
  if (pass.data && indices.numel() % pass.data->batch() == 0) {
    return pass.data->DescribeSample(pass.iteration, part_of(pass.data->batch()));
  }
  return "sample " + std::to_string(part_of(range.samples)) + " of the batch";
}

at::Tensor Valid(const LabelRange& range, const at::Tensor& indices) {
  at::Tensor valid = indices.ge(0).logical_and_(indices.lt(range.count));
  if (range.ignore) valid.logical_or_(indices.eq(*range.ignore));
  return valid;
}

[[noreturn]] void ThrowFirstInvalid(const LabelRange& range, const at::Tensor& indices,
                                    const Pass& pass) {
  const auto first = at::nonzero(Valid(range, indices).logical_not_().flatten())[0].item<int64_t>();
  throw DataError("layer \"" + range.layer + "\": the " + range.value + " of " +
                  DescribePlace(range, first, indices, pass) + " is " +
                  std::to_string(indices.flatten()[first].item<int64_t>()) + "; the layer has " +
                  range.counted + " 0 to " + std::to_string(range.count - 1));
}

}  // namespace

void LabelChecks::Add(LabelRange range, at::Tensor indices, at::Tensor all_valid) {
  labels_.push_back({std::move(range), std::move(indices), std::move(all_valid)});
}

std::vector<at::Tensor> LabelChecks::all_valid() const {
  std::vector<at::Tensor> all;
  for (const Labels& labels : labels_) all.push_back(labels.all_valid);
  return all;
}

void LabelChecks::Check(std::span<const double> valid, const Pass& pass) const {
  for (size_t i = 0; i < valid.size(); ++i) {
    if (valid[i] == 0) ThrowFirstInvalid(labels_[i].range, labels_[i].indices, pass);
  }
}

at::Tensor ToIndices(const LabelRange& range, const at::Tensor& values, const Pass& pass) {
  at::Tensor indices = values.detach().to(at::kLong);
  const at::Tensor valid = Valid(range, indices);
  const at::Tensor all_valid = valid.all();
  if (pass.later) {
    pass.later->Add(range, indices, all_valid);
    return indices.mul(valid);
  }
  if (!all_valid.item<bool>()) ThrowFirstInvalid(range, indices, pass);
  return indices;
}

}  // namespace poseidon
