// The checks of an experiment file beyond its syntax.
#pragma once

#include "experiments/experiment_file.h"

namespace poseidon {

// What a point may train or measure: far above what anybody waits for. With those that do not
// count, summary.json has a value of each.
inline constexpr int kMostIterations = 500000;

// Throws ConfigError with the place of the first thing that can't be: values out of range, names of
// nothing, two things of one name, a sweep or figure without what it needs. The file does not have
// the systems of known policies yet.
void CheckExperiment(const ExperimentFile& file);

}  // namespace poseidon
