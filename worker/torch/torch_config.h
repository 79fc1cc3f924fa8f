// What a job with engine TORCH trains with.
#pragma once

#include <memory>

#include "proto/job_config.h"
#include "worker/engine_config.h"

namespace poseidon {

// Reads the job's solver and net. Throws ConfigError or DataError.
std::unique_ptr<EngineConfig> ReadTorchConfig(const JobConfig& config);

}  // namespace poseidon
