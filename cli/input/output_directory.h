// Where a verb writes to.
#pragma once

#include <string>

#include "proto/job_config.h"

namespace poseidon {

// --out, or else out/NAME for a job or an experiment of that name. Throws ConfigError that names
// `config`, the path of the file with the name, if that leads out of the directory out, or nowhere
// in it.
std::string OutputDirectory(const std::string& name, const std::string& config);

// A job's. Throws ConfigError likewise, and if the config is the file job.prototxt there, which the
// job writes over, unless it is one that a job has written.
std::string JobDirectory(const JobConfig& config);

}  // namespace poseidon
