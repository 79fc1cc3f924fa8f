// A point of an experiment in virtual time (simulation/training_simulation.h), or as the planner
// predicts it.
#pragma once

#include <stop_token>

#include "experiments/experiment_point.h"

namespace poseidon {

// May be called from several threads; `simulations` says how many do so at a time, whose memory is
// the process's together. When `stop` is requested planning and simulation end, in a second or two,
// with Interrupted (core/program.h). Throws Error.
PointResult SimulatePoint(const ExperimentPoint& point, const std::stop_token& stop = {},
                          int simulations = 1);

}  // namespace poseidon
