#include "planner/job_plan.h"

#include "core/error.h"
#include "planner/batch_parts.h"
#include "planner/cost/cluster_model.h"
#include "planner/planner.h"
#include "planner/predictor.h"
#include "planner/time_planner.h"

namespace poseidon {
namespace {

// What the training program asks for and the job's config does not let it have.
void CheckUpdate(const UpdateRuleSpec& rule, const Job& job) {
  const Communication& communication = job.communication();
  if (!rule.deferred() && rule.type() != "MeanGradient") return;
  const std::string what =
      "the training program makes the updates itself (clip_gradients, large_batch.lars, or a "
      "solver of its own)";
  if (communication.staleness() != 0) {
    throw ConfigError("communication.staleness must be 0: " + what +
                      ", from the gradients of all workers");
  }
  if (job.recovery().mode() != Recovery::NONE) {
    throw ConfigError("recovery.mode must be NONE: " + what +
                      ", and can't take one back; `poseidon run --restarts=N` starts such a job "
                      "again from its newest snapshot");
  }
  if (communication.update_at() == Communication::SERVERS) {
    throw ConfigError("communication.update_at must not be SERVERS: " + what);
  }
}

}  // namespace

Plan PlanJob(const InformationBook& all, const Job& job, const JobPlanTrial& trial) {
  CheckUpdate(all.model().update_rule(), job);
  // What a lost server kept would be gone with it.
  InformationBook book = job.recovery().mode() == Recovery::NONE ? all : all.WithUpdatesAtWorkers();
  if (job.training().batch() == Training::BALANCED) book = book.WithoutFactors();
  const Communication& communication = job.communication();
  Predictor predictor(book, ClusterOf(job));
  const bool by_time = communication.policy() == Communication::TIME;
  PlanTrial plan_trial;
  if (trial) plan_trial = [&](const Plan& plan) { return trial(plan, job, book.model()); };
  Plan plan =
      by_time ? PlanByTime(predictor, communication, plan_trial) : MakePlan(book, communication);
  if (!by_time && job.cluster().has_network()) predictor.Annotate(plan);
  if (job.cluster().has_network() && !communication.has_window_bytes()) {
    plan.set_window_bytes(WindowBytes(predictor.cluster()));
  }
  SetFirstParts(job.training(), book.model().batch(), plan);
  return plan;
}

}  // namespace poseidon
