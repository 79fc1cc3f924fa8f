// A point of an experiment in virtual time (simulation/training_simulation.h), or as the planner
// predicts it.
#pragma once

#include <functional>

#include "experiments/experiment_point.h"

namespace poseidon {

// May be called from several threads. `interrupted` is asked some ten times a second, on the
// calling thread; if it says so, the simulation ends with Interrupted (core/program.h). Throws
// Error.
PointResult SimulatePoint(const ExperimentPoint& point,
                          const std::function<bool()>& interrupted = {});

}  // namespace poseidon
