#include "worker/engine_factory.h"

#include "caffe_adapter/solver.h"
#include "core/error.h"
#include "worker/recipe.h"
#include "worker/replay_engine.h"
#include "worker/torch_engine.h"

namespace poseidon {
namespace {

// Whoever wants more has mistaken something; an hour's step then still fits the clock.
constexpr double kMostComputeFactor = 1e6;

class ReplayPlan : public EnginePlan {
 public:
  ReplayPlan(const JobConfig& config, double compute_factor)
      : job_(config.job), compute_factor_(compute_factor) {
    ValidateReplay(job_.training().replay());
  }
  TrainerOptions trainer_options() const override {
    TrainerOptions options;
    options.max_iter = job_.training().has_iterations() ? job_.training().iterations()
                                                        : job_.training().replay().iterations();
    return options;
  }
  std::unique_ptr<Engine> Make(int rank) const override {
    const uint64_t seed = job_.training().has_seed() ? job_.training().seed() : 1;
    return std::make_unique<ReplayEngine>(job_.training().replay(), rank, seed, compute_factor_);
  }

 private:
  Job job_;
  double compute_factor_;
};

#if POSEIDON_TORCH
class TorchPlan : public EnginePlan {
 public:
  explicit TorchPlan(const JobConfig& config)
      : config_(config),
        job_(config_.job),
        solver_(LoadSolver(ResolvePath(config, job_.training().solver()))) {}

  TrainerOptions trainer_options() const override {
    TrainerOptions options = TrainerOptionsOf(job_, solver_.parameter);
    for (std::string& path : options.weights) path = Find(path);
    return options;
  }

  ModelSpec ModelOf(const Engine& engine) const override {
    ModelSpec model = engine.model();
    ApplyRecipe(job_, solver_.parameter, model);
    return model;
  }

  std::optional<FoundSnapshot> FindStart() const override {
    if (!job_.training().has_snapshot()) return std::nullopt;
    if (job_.training().snapshot() != "latest") {
      return ReadSnapshot(ResolvePath(config_, job_.training().snapshot()));
    }
    const auto path = FindLatestSnapshot(solver_.parameter.snapshot_prefix());
    if (!path) return std::nullopt;
    return ReadSnapshot(*path);
  }

  std::unique_ptr<Engine> Make(int rank) const override {
    TorchEngineOptions options;
    options.solver = solver_;
    options.rank = rank;
    options.workers = job_.cluster().workers();
    options.shuffle = job_.training().shuffle();
    options.seed = Seed();
    options.label_smoothing = job_.training().large_batch().label_smoothing();
    if (job_.training().has_batch_per_worker()) {
      options.batch_per_worker = job_.training().batch_per_worker();
    }
    options.threads = std::max(1, job_.training().threads());
    return MakeTorchEngine(std::move(options));
  }

 private:
  // Beside the config, if it is there; a worker that does not need it need not have it.
  std::string Find(const std::string& path) const {
    try {
      return ResolvePath(config_, path);
    } catch (const ConfigError&) {
      return path;
    }
  }

  uint64_t Seed() const {
    if (job_.training().has_seed()) return job_.training().seed();
    return solver_.parameter.random_seed() >= 0 ? solver_.parameter.random_seed() : 1;
  }

  JobConfig config_;
  const Job& job_;
  Solver solver_;
};
#endif

}  // namespace

std::unique_ptr<EnginePlan> PlanEngine(const JobConfig& config, double compute_factor) {
  if (!(compute_factor > 0 && compute_factor <= kMostComputeFactor)) {
    throw ConfigError("--compute_factor must be above 0 and at most a million");
  }
  if (const int devices = config.job.cluster().devices_per_worker(); devices != 1) {
    throw ConfigError(config.path + ": cluster.devices_per_worker is " + std::to_string(devices) +
                      "; workers train on one device, more are for predictions and simulations. "
                      "Start a worker for each device, or set it to 1");
  }
  if (config.job.training().engine() == Training::REPLAY) {
    return std::make_unique<ReplayPlan>(config, compute_factor);
  }
  if (compute_factor != 1) {
    throw ConfigError(config.path +
                      ": training.engine is TORCH, which computes as fast as it can; "
                      "--compute_factor is for REPLAY");
  }
#if POSEIDON_TORCH
  return std::make_unique<TorchPlan>(config);
#else
  throw ConfigError(config.path +
                    ": training.engine is TORCH, but this build has no libtorch (CMake's "
                    "POSEIDON_TORCH is off); only REPLAY works");
#endif
}

}  // namespace poseidon
