#include "planner/job_plan.h"

#include "core/arithmetic/torch_update.h"
#include "core/error.h"
#include "planner/backups.h"
#include "planner/batch_parts.h"
#include "planner/cost/cluster_model.h"
#include "planner/grid_choice.h"
#include "planner/lane_choice.h"
#include "planner/planner.h"
#include "planner/predictor.h"
#include "planner/time_planner.h"
#include "proto/compatibility.h"
#include "proto/lanes.h"

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
  if (rule.type() == "MeanGradient" && job.recovery().mode() != Recovery::NONE) {
    throw ConfigError("recovery.mode must be NONE: " + what +
                      ", and nobody but the program knows how to take one back; `poseidon run "
                      "--restarts=N` starts such a job again from its newest snapshot");
  }
  if (communication.update_at() == Communication::SERVERS) {
    throw ConfigError("communication.update_at must not be SERVERS: " + what);
  }
}

// The numbers of torch.optim's rules go to servers with the gradients, and to nobody else.
void CheckServersUpdate(const UpdateRuleSpec& rule, const Job& job, const Plan& plan) {
  if (!IsTorchType(rule.type())) return;
  const std::string what = "the training program wants the servers to update (" + rule.type() + ")";
  if (plan.staleness() != 0) {
    throw ConfigError("communication.staleness must be 0: " + what +
                      ", by the mean gradient of all workers");
  }
  if (job.recovery().mode() != Recovery::NONE && !UpdatesAtServers(job)) {
    throw ConfigError("communication.update_at must be SERVERS: " + what +
                      ", which a job with recovery does where it says so");
  }
  for (const BucketPlan& bucket : plan.buckets()) {
    if (bucket.scheme() == PS && !bucket.update_at_workers()) continue;
    throw ConfigError(
        "communication.policy must be ALL_PS, without a codec or update_at WORKERS: " + what +
        ", but by the plan layer " + bucket.name() + " is updated by the workers");
  }
}

}  // namespace

Plan PlanJob(const InformationBook& all, const Job& job, const JobPlanTrial& trial) {
  CheckUpdate(all.model().update_rule(), job);
  const bool recovers = job.recovery().mode() != Recovery::NONE;
  // Unless the job asks for it servers keep nothing, which is what the loss of one costs least.
  InformationBook book = recovers && !UpdatesAtServers(job) ? all.WithUpdatesAtWorkers() : all;
  if (job.training().batch() == Training::BALANCED) book = book.WithoutFactors();
  Communication communication = job.communication();
  Predictor predictor(book, ClusterOf(job));
  const bool by_time = communication.policy() == Communication::TIME;
  PlanTrial plan_trial;
  if (trial) plan_trial = [&](const Plan& plan) { return trial(plan, job, book.model()); };
  const PlanForLanes plan_for = [&](int lanes) {
    communication.set_lanes(lanes);
    Plan made =
        by_time ? PlanByTime(predictor, communication, plan_trial) : MakePlan(book, communication);
    if (recovers) PlaceBackups({}, made);
    if (by_time || !job.cluster().has_network()) return made;
    // A grid that is named is somebody's who knows the links; along it go rings.
    if (made.grid_size() > 0 && communication.grid().empty()) {
      SetGrid(BestGrid(predictor, made, GridsFor(book, communication)), made);
    }
    predictor.Annotate(made);
    return made;
  };
  const int most = static_cast<int>(book.Query(Property::kLanes));
  Plan plan = PlansLanes(job) ? PlanWithLanes(most, plan_for) : plan_for(communication.lanes());
  if (job.cluster().has_network() && !communication.has_window_bytes()) {
    plan.set_window_bytes(WindowBytes(predictor.cluster()));
  }
  CheckServersUpdate(book.model().update_rule(), job, plan);
  SetFirstParts(job.training(), book.model().batch(), plan);
  return plan;
}

}  // namespace poseidon
