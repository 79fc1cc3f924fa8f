// LayerTimesMean: what the workers of a job measured of its layers, gathered until all have, and
// their mean.
//
// A value; not thread-safe.
#pragma once

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

 private:
  std::map<NodeId, wire::LayerTimes> times_;
};

}  // namespace poseidon
