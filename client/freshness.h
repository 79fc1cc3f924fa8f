// Freshness: up to which iteration each layer's parameters are there, put together from what its
// lanes report.
#pragma once

#include <cstdint>
#include <vector>

#include "core/time.h"
#include "proto/model.pb.h"

namespace poseidon {

// A value; one thread at a time.
class Freshness {
 public:
  explicit Freshness(const Plan& plan);

  // A lane's part of `layer` has the values for the forward pass of `iteration`. True if with it
  // the whole layer has.
  bool Report(int layer, int64_t iteration);
  // Whether the layer's parameters are those for the forward pass of `iteration` (or later).
  bool IsFresh(int layer, int64_t iteration) const { return layers_[layer].fresh >= iteration; }

 private:
  struct Layer {
    int parts = 0;
    int64_t fresh = -1;
    int reported = 0;  // parts that have reported fresh + 1
  };
  std::vector<Layer> layers_;
};

}  // namespace poseidon
