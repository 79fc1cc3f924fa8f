// The buckets of a plan as DeviceStaging moves them between devices and the host.
//
// They are the plan's, but for a worker that is alone, whose gradients stay on its devices (but in
// the first iteration of a plan, if an earlier one has left a residual): nobody waits for one of
// them, and whatever is done for a bucket costs the thread that launches kernels time. So small
// buckets go together there.
//
//   for (const LayerExchange::Bucket& bucket : ExchangeBuckets(context)) { ... }
#pragma once

#include <vector>

#include "client/staging/layer_exchange.h"
#include "client/sync/syncer.h"

namespace poseidon {

// All layers, in order.
std::vector<LayerExchange::Bucket> ExchangeBuckets(const SyncContext& context);

}  // namespace poseidon
