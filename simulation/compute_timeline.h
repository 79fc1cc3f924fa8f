// How long a simulated worker computes.
#pragma once

#include <optional>
#include <vector>

#include "core/time.h"

namespace poseidon {

// One step of the net, as worker/engine/engine.h counts them: with parameters or without.
struct ComputeStep {
  std::optional<int> layer;  // index in the ModelSpec of the parameters that the step uses
  Duration forward{};
  Duration backward{};
};

// All steps in forward order. The steps with a layer name the model's layers in their order, each
// once.
struct ComputeTimeline {
  std::vector<ComputeStep> steps;
};

}  // namespace poseidon
