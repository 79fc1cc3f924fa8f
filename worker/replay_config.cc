#include "worker/replay_config.h"

#include <string>

#include "core/error.h"
#include "proto/cluster_rates.h"
#include "worker/engine/replay_engine.h"

namespace poseidon {
namespace {

class ReplayEngineConfig : public EngineConfig {
 public:
  ReplayEngineConfig(const JobConfig& config, double compute_factor)
      : job_(config.job), compute_factor_(compute_factor) {
    ValidateReplay(job_.training().replay());
  }
  TrainerOptions trainer_options() const override {
    TrainerOptions options;
    options.max_iter = job_.training().has_iterations() ? job_.training().iterations()
                                                        : job_.training().replay().iterations();
    return options;
  }
  std::unique_ptr<Engine> Make(int rank, int /*replica*/, EngineDevice* /*device*/) const override {
    const uint64_t seed = job_.training().has_seed() ? job_.training().seed() : 1;
    return std::make_unique<ReplayEngine>(job_.training().replay(), rank, seed,
                                          compute_factor_ * KnownFactor(rank),
                                          ComputeDisturbance(job_.cluster().disturbance()));
  }

 private:
  double KnownFactor(int rank) const {
    for (const Deviation& deviation : job_.cluster().deviation()) {
      if (deviation.worker() == rank) return deviation.compute_factor();
    }
    return 1;
  }

  Job job_;
  double compute_factor_;
};

}  // namespace

std::unique_ptr<EngineConfig> ReadReplayConfig(const JobConfig& config, double compute_factor) {
  CheckComputeFactor("--compute_factor", compute_factor);
  return std::make_unique<ReplayEngineConfig>(config, compute_factor);
}

}  // namespace poseidon
