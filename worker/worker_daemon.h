// The worker daemon, whatever computes its engines: what the programs poseidon_worker and
// poseidon_torch_worker share.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "proto/job_config.h"
#include "worker/engine_config.h"
#include "worker/worker_devices.h"

namespace poseidon {

// What the job trains with. Throws ConfigError or DataError.
using ReadEngineConfig =
    std::function<std::unique_ptr<EngineConfig>(const JobConfig& config, double compute_factor)>;

// What its replicas compute on; `first`: the first of its GPUs. Throws ConfigError.
using MakeDevices = std::function<WorkerDevices(const JobConfig& config, int first)>;

// Reads the flags and returns that of the job config. The first thing that main does.
std::string ReadWorkerFlags(int* argc, char*** argv);

// Takes part in the job of the flags to its end, and returns the exit code.
int RunWorker(const char* argv0, const ReadEngineConfig& read, const MakeDevices& make_devices);

}  // namespace poseidon
