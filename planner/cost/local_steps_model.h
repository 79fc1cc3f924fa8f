// What an iteration of local steps takes (communication.local_steps): the steps, and what of each
// fragment's exchange is longer than the steps that go on meanwhile.
//
//   iteration = H C + sum over fragments p of max(0, E_p - T C)
//
// with H steps of C seconds, of which T overlap an exchange, and E_p the exchange of fragment p's
// layers alone, all of which are ready together. One fragment at a time is under way, so that none
// slows another down.
#pragma once

#include <functional>
#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/predicted_times.h"
#include "proto/model.pb.h"

namespace poseidon {

// What a usual iteration takes under a plan for a model whose layers compute so long.
using PredictIteration =
    std::function<PredictedTimes(const Plan&, const ModelSpec&, const std::vector<LayerTime>&)>;

// Of a plan with local_steps. `layers` are the times of a step.
PredictedTimes PredictLocalSteps(const Plan& plan, const ModelSpec& model,
                                 const std::vector<LayerTime>& layers,
                                 const PredictIteration& predict);

}  // namespace poseidon
