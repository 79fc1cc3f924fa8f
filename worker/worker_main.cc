// poseidon_worker: the worker daemon. It replays itself; with engine TORCH it becomes
// poseidon_torch_worker, so that only who computes with libtorch takes the second that loading it
// needs.
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/process/program_directory.h"
#include "worker/replay_config.h"
#include "worker/worker_daemon.h"

namespace poseidon {
namespace {

constexpr char kTorchWorker[] = "poseidon_torch_worker";

// Whether the config says so; if it can't be read, who needs it says why.
bool WantsTorch(const std::string& path) {
  try {
    return ReadJobConfig(path).job.training().engine() == Training::TORCH;
  } catch (const Error&) {
    return false;
  }
}

std::unique_ptr<EngineConfig> ReadConfig(const JobConfig& config, double compute_factor,
                                         int torch_error) {
  if (config.job.training().engine() == Training::REPLAY) {
    return ReadReplayConfig(config, compute_factor);
  }
  throw ConfigError(config.path + ": training.engine is TORCH, but " + SupportFile(kTorchWorker) +
                    " can't be run: " + std::generic_category().message(torch_error) +
                    "; a build without libtorch (CMake's POSEIDON_TORCH is off) lacks it, and only "
                    "REPLAY works there");
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  // Reading the flags takes them off argv.
  const std::vector<char*> arguments(argv, argv + argc + 1);
  const std::string config = poseidon::ReadWorkerFlags(&argc, &argv);
  int torch_error = 0;
  // Before the job is told of this worker and before a signal only asks it to end.
  if (poseidon::WantsTorch(config)) {
    execv(poseidon::SupportFile(poseidon::kTorchWorker).c_str(), arguments.data());
    torch_error = errno;
  }
  return poseidon::RunWorker(argv[0],
                             [torch_error](const poseidon::JobConfig& job, double compute_factor) {
                               return poseidon::ReadConfig(job, compute_factor, torch_error);
                             });
}
