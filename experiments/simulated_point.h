// A point of an experiment in virtual time (simulation/training_simulation.h), or as the planner
// predicts it.
#pragma once

#include "experiments/experiment_point.h"

namespace poseidon {

// May be called from several threads. Throws Error.
PointResult SimulatePoint(const ExperimentPoint& point);

}  // namespace poseidon
