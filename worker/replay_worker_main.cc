// poseidon_worker of a build without libtorch, in the place of worker_main.cc.
#include "core/error.h"
#include "worker/cuda_compute_device.h"
#include "worker/replay_config.h"
#include "worker/worker_daemon.h"

namespace poseidon {
namespace {

std::unique_ptr<EngineConfig> ReadConfig(const JobConfig& config, double compute_factor) {
  if (config.job.training().engine() == Training::TORCH) {
    throw ConfigError(config.path +
                      ": training.engine is TORCH, but this build has no libtorch (CMake's "
                      "POSEIDON_TORCH is off); only REPLAY works");
  }
  return ReadReplayConfig(config, compute_factor);
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::ReadWorkerFlags(&argc, &argv);
  return poseidon::RunWorker(argv[0], poseidon::ReadConfig, poseidon::MakeWorkerDevices);
}
