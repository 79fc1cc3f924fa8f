// poseidon_torch_worker: what poseidon_worker becomes where a job computes with libtorch or on
// GPUs.
#include <unistd.h>

#include <cstdio>

#include "core/error.h"
#include "worker/cuda_compute_device.h"
#include "worker/replay_config.h"
#include "worker/torch/torch_config.h"
#include "worker/worker_daemon.h"

namespace poseidon {
namespace {

std::unique_ptr<EngineConfig> ReadConfig(const JobConfig& config, double compute_factor) {
  // On GPUs.
  if (config.job.training().engine() == Training::REPLAY) {
    return ReadReplayConfig(config, compute_factor);
  }
  if (compute_factor != 1) {
    throw ConfigError(config.path +
                      ": training.engine is TORCH, which computes as fast as it can; "
                      "--compute_factor is for REPLAY");
  }
  return ReadTorchConfig(config);
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::ReadWorkerFlags(&argc, &argv);
  const int code = poseidon::RunWorker(argv[0], poseidon::ReadConfig, poseidon::MakeWorkerDevices);
  // What libtorch does at the end, taking each of its thousands of operators out of its tables
  // again, takes 0.15 s of a core and serves nobody.
  std::fflush(nullptr);
  _exit(code);
}
