// `poseidon experiment`: the points of an experiment file, each simulated, emulated or run.
#pragma once

#include "core/error.h"

namespace poseidon {

// Reads the flags of `poseidon experiment --help`, executes the points that the output directory
// lacks, and makes the report. Throws Error for a file or flags that can't be; a point that fails
// is named at the end and makes kFailure.
ExitCode ExperimentVerb();

}  // namespace poseidon
