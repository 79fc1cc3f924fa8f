// From a job config to its engine.
#pragma once

#include <memory>

#include "proto/job_config.h"
#include "worker/engine.h"
#include "worker/trainer.h"

namespace poseidon {

// What a job trains with, before a worker knows its rank: files are read and checked, so that
// mistakes show at once.
class EnginePlan {
 public:
  virtual ~EnginePlan() = default;
  virtual TrainerOptions trainer_options() const = 0;
  virtual std::unique_ptr<Engine> Make(int rank) const = 0;
  // The engine's model as the job trains it: with what its recipe changes.
  virtual ModelSpec ModelOf(const Engine& engine) const { return engine.model(); }
  // The snapshot that the job goes on from, if any. Throws DataError.
  virtual std::optional<FoundSnapshot> FindStart() const { return std::nullopt; }
};

// A replay's times are multiplied by `compute_factor`; of the model that is declared they are not.
// Throws ConfigError or DataError, also for engine TORCH in a build without libtorch, and with
// another factor than 1.
std::unique_ptr<EnginePlan> PlanEngine(const JobConfig& config, double compute_factor = 1);

}  // namespace poseidon
