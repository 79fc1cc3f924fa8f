// The checks of an experiment file beyond its syntax.
#pragma once

#include "experiments/experiment_file.h"

namespace poseidon {

// Throws ConfigError with the place of the first thing that can't be: values out of range, names of
// nothing, two things of one name, a sweep or figure without what it needs. The file does not have
// the systems of known policies yet.
void CheckExperiment(const ExperimentFile& file);

}  // namespace poseidon
