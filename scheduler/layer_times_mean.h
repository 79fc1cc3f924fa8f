// LayerTimesMean: what the workers of a job measured of its layers, gathered until all have, and
// their mean. Those that were lost since then count, too.
//
// A value; not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "proto/wire.pb.h"
#include "transport/address.h"

namespace poseidon {

class LayerTimesMean {
 public:
  // The mean of all workers if this worker is the last one of `workers`. What is not a time for
  // each of `layers` layers is ignored, and so is what a worker says again.
  std::optional<wire::LayerTimes> Add(const NodeId& worker, wire::LayerTimes times, int layers,
                                      int workers);

  // The workers are so many now. The mean, if those that it was waited for are gone.
  std::optional<wire::LayerTimes> Remain(int workers);

 private:
  std::optional<wire::LayerTimes> MeanOf(int workers);

  std::map<NodeId, wire::LayerTimes> times_;
  size_t in_mean_ = 0;  // of times_, in the last mean
};

}  // namespace poseidon
