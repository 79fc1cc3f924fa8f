// Bottoms whose values name something: the class of a sample, a row of a matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>

#include "worker/torch_layer.h"

namespace poseidon {

// What the values may be.
struct LabelRange {
  std::string layer;                // its name
  int64_t count;                    // 0 to count - 1
  int64_t samples;                  // of the batch, as many values for each
  std::optional<int64_t> ignore;    // allowed, too
  std::string value = "label";      // for errors: "the label of record 17 of PATH is 10"
  std::string counted = "classes";  // and "the layer has classes 0 to 9"
};

// The values as integers, rounded towards zero as Caffe does, of the same shape. Throws DataError
// that names the layer and the sample for one out of range.
at::Tensor ToIndices(const LabelRange& range, const at::Tensor& values, const Pass& pass);

}  // namespace poseidon
