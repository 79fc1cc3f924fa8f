// poseidon_worker: the worker daemon. It replays itself; for engine TORCH and for GPUs it becomes
// poseidon_torch_worker, so that only who needs libtorch and CUDA takes the second to load them.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "core/arithmetic/blas_core.h"
#include "core/error.h"
#include "core/process/program_directory.h"
#include "worker/replay_config.h"
#include "worker/worker_daemon.h"

namespace poseidon {
namespace {

std::string TorchWorker() { return SupportFile("poseidon_torch_worker"); }

// Becomes it, if the job of the config needs it. Returns why not; 0: it does not need it.
int BecomeTorchWorker(const std::string& config, const std::vector<char*>& arguments) {
  Training training;
  try {
    training = ReadJobConfig(config).job.training();
  } catch (const Error&) {
    return 0;  // who reads it again says why it can't be read
  }
  if (training.engine() != Training::TORCH && training.device() != Training::CUDA) return 0;
  // OpenBLAS starts a thread for each core as soon as it is loaded, all of which spin for a while,
  // although the job's are fewer. No other thread reads the environment.
  setenv("OPENBLAS_NUM_THREADS", std::to_string(std::max(1, training.threads())).c_str(),
         /*overwrite=*/0);
  TellBetterBlasCore();
  execv(TorchWorker().c_str(), arguments.data());
  return errno;
}

[[noreturn]] void Refuse(const JobConfig& config, const std::string& wanted, int error) {
  throw ConfigError(config.path + ": " + wanted + ", but " + TorchWorker() +
                    " can't be run: " + std::generic_category().message(error) +
                    "; copy it there from where poseidon_worker comes from");
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  using namespace poseidon;
  // Reading the flags takes them off argv.
  const std::vector<char*> arguments(argv, argv + argc + 1);
  const std::string path = ReadWorkerFlags(&argc, &argv);
  // Before the job is told of this worker, and before a signal only asks it to end.
  const int error = BecomeTorchWorker(path, arguments);
  const auto read = [error](const JobConfig& config, double compute_factor) {
    if (config.job.training().engine() == Training::TORCH) {
      Refuse(config, "training.engine is TORCH", error);
    }
    return ReadReplayConfig(config, compute_factor);
  };
  const auto make_devices = [error](const JobConfig& config, int /*first*/) {
    if (config.job.training().device() == Training::CUDA) {
      Refuse(config, "training.device is CUDA", error);
    }
    return MakeHostDevices(config.job.cluster().devices_per_worker());
  };
  return RunWorker(argv[0], read, make_devices);
}
