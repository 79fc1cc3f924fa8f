#include "cli/jobs/training_checks.h"

#include <cstdint>
#include <optional>

#include "cli/input/data_command.h"
#include "core/error.h"
#include "planner/job_plan.h"
#include "proto/model.pb.h"
#include "worker/engine/balanced_batch.h"
#include "worker/recipe.h"

namespace poseidon {
namespace {

// Samples that a device processes at once, where the job says it.
std::optional<int64_t> BatchOf(const Job& job) {
  if (!job.training().has_batch_per_worker()) return std::nullopt;
  return job.training().batch_per_worker() / job.cluster().devices_per_worker();
}

}  // namespace

void CheckRecipe(const Job& job, const Solver& solver) {
  ModelSpec model;  // its update rule alone
  *model.mutable_update_rule() = ToUpdateRuleSpec(solver.parameter);
  ApplyRecipe(job, solver.parameter, model);
  CheckUpdate(model.update_rule(), job);
  CheckOneWrittenBatch(job.training(), solver.train);
  CheckOrder(job.training(), solver.train);
}

NetDescription CheckData(const JobConfig& config, const Solver& solver) {
  const auto describe = [&](const SolverNet& net, std::optional<int64_t> batch) {
    try {
      return DescribeNet(net, batch);
    } catch (const DataError& error) {
      throw DataError(error.what() + HowToMakeData(config, net));
    }
  };
  NetDescription train = describe(solver.train, BatchOf(config.job));
  if (solver.parameter.test_interval() <= 0) return train;
  for (const SolverNet& test : solver.tests) describe(test, std::nullopt);
  return train;
}

void CheckTrainNet(const Job& job, const NetDescription& net, const SolverNet& train) {
  CheckBalance(job, net);
  CheckSmoothing(job.training().large_batch().label_smoothing(), net, train);
}

}  // namespace poseidon
