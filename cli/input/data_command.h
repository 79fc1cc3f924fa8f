// What to tell a user whose job's data can't be read.
#pragma once

#include <string>

#include "caffe_adapter/net/solver.h"
#include "proto/job_config.h"

namespace poseidon {

// How to make the data of the job's `net`, as the second half of an error's message, "; in the
// working directory ...": the job's training.data_command, to be entered where this process works,
// or how to find a command if the job has none. In the command, `poseidon` is this program as it
// can be called from here, and a file that it reads (the value of any flag but --out) is looked for
// as the job's solver is.
//
// Empty where that is no help: where nothing is missing, as what is damaged or may not be read is
// not, or where the command writes elsewhere, by its --out.
std::string HowToMakeData(const JobConfig& config, const SolverNet& net);

// How to make the job's data on a host of it, where the programs are in `programs` and the working
// directory has the path of this one.
std::string HowToMakeDataThere(const JobConfig& config, const std::string& programs);

}  // namespace poseidon
