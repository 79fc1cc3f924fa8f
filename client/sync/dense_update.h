// DenseUpdate: what a worker's devices have to know of a layer that they update themselves from a
// gradient which is a float a parameter: under an all-reduce, or where servers only add up.
#pragma once

#include <optional>
#include <vector>

#include "client/sync/syncer.h"
#include "core/arithmetic/update_rule.h"
#include "proto/bucket.h"

namespace poseidon {

// The same in all iterations of a plan.
struct DenseUpdate {
  const UpdateRule* rule = nullptr;
  std::vector<UpdateSegment> segments;  // of all of the layer's floats, in order
  // Of what has come of all workers' gradients.
  float gradient_scale = 1;
};

// None: the layer is updated elsewhere, or from factors (ProductUpdateOf).
std::optional<DenseUpdate> DenseUpdateOf(const SyncContext& context, int layer);
// Whether nobody else has a part in the gradient of such a layer, and it is not rounded.
bool IsAlone(const SyncContext& context, int layer);

}  // namespace poseidon
