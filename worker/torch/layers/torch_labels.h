// Bottoms whose values name something: the class of a sample, a row of a matrix.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/torch/layers/torch_layer.h"

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

// What is to be found out about labels once the device has computed them. One thread at a time.
class LabelChecks {
 public:
  // `all_valid` is a truth value, a scalar.
  void Add(LabelRange range, at::Tensor indices, at::Tensor all_valid);
  // Of what was added, in order.
  std::vector<at::Tensor> all_valid() const;
  // `valid` is what all_valid() has turned out to be, 0 or 1 each. Throws the DataError of
  // ToIndices if one is 0, which waits for the device.
  void Check(std::span<const double> valid, const Pass& pass) const;
  // A new pass begins.
  void Clear() { labels_.clear(); }

 private:
  struct Labels {
    LabelRange range;
    at::Tensor indices;
    at::Tensor all_valid;
  };
  std::vector<Labels> labels_;
};

// The values as integers, rounded towards zero as Caffe does, of the same shape. Throws DataError
// that names the layer and the sample for one out of range; where the pass checks later, that one
// is 0 until then.
at::Tensor ToIndices(const LabelRange& range, const at::Tensor& values, const Pass& pass);

}  // namespace poseidon
