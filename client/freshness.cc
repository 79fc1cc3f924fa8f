#include "client/freshness.h"

#include <glog/logging.h>

#include "client/sync_lane.h"

namespace poseidon {

Freshness::Freshness(const Plan& plan) {
  for (int layer = 0; layer < plan.layers_size(); ++layer) {
    layers_.push_back({PartsOfLayer(plan, layer)});
  }
}

bool Freshness::Report(int layer, int64_t iteration) {
  Layer& entry = layers_[layer];
  CHECK_EQ(iteration, entry.fresh + 1) << "a lane ran ahead of the training loop";
  if (++entry.reported < entry.parts) return false;
  entry.reported = 0;
  ++entry.fresh;
  return true;
}

}  // namespace poseidon
