// UpdateKeeping: an update of Caffe's rules that leaves what was there before, in the same pass
// over memory. A copy made beside the update takes more time than the update, which is bound by
// what it reads and writes; here each old float is written once, where something was to be written
// back anyway.
//
// Pure; any thread may call it on vectors that no other thread touches meanwhile.
#pragma once

#include <span>

#include "core/arithmetic/update_rule.h"

namespace poseidon {

// Vectors of n parameters, with S = OptimizerStatePerParameter(rule). None overlap, but that
// `before` may be the memory of `gradient_sum`.
struct KeepingVectors {
  std::span<const float> gradient_sum;
  std::span<float> parameters;          // updated in place
  std::span<float> before;              // becomes what the parameters were
  std::span<const float> state_before;  // n * S; stays as it is
  std::span<float> state;               // n * S; becomes that of the updated parameters
};

// The same bits as Update(step, gradient_sum, parameters, state) with state_before in `state`, also
// where the rule is deferred. Not for rules of torch.optim's.
void UpdateKeeping(const UpdateStep& step, const KeepingVectors& vectors);

}  // namespace poseidon
