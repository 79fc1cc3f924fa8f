// What a job with engine REPLAY trains with.
#pragma once

#include <memory>

#include "proto/job_config.h"
#include "worker/engine_config.h"

namespace poseidon {

// A replay's times are multiplied by `compute_factor` and by what the config says of the rank
// (Cluster.deviation); of the model that is declared they are not.
// Throws ConfigError for a profile or a factor that can't be replayed, and for several devices.
std::unique_ptr<EngineConfig> ReadReplayConfig(const JobConfig& config, double compute_factor = 1);

}  // namespace poseidon
