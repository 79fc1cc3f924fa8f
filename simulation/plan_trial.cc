#include "simulation/plan_trial.h"

#include <algorithm>

#include "core/error.h"
#include "planner/job_plan.h"
#include "planner/model_times.h"
#include "proto/bucket.h"
#include "simulation/simulation_size.h"
#include "simulation/training_simulation.h"

namespace poseidon {
namespace {

// Some 1.5 seconds on one core. A ring of ten workers takes VGG19 half of it.
constexpr double kMostMessages = 500'000;

// As WarmUpIterations, but by the plan's own schemes.
SteadyIterations IterationsFor(const Plan& plan, const Job& job) {
  constexpr int kAlike = 2;
  constexpr int kApart = 6;
  const bool in_pairs =
      std::any_of(plan.buckets().begin(), plan.buckets().end(), [](const BucketPlan& bucket) {
        return bucket.scheme() == HALVING_DOUBLING || bucket.scheme() == TORUS;
      });
  const bool apart = in_pairs || plan.staleness() != 0 || job.cluster().deviation_size() > 0;
  return {.warm_up = apart ? kApart : kAlike, .measured = 3};
}

}  // namespace

std::optional<double> TryPlan(const Plan& plan, const Job& job, const ModelSpec& model) {
  const SteadyIterations steady = IterationsFor(plan, job);
  const int iterations = steady.warm_up + steady.measured;
  if (DataMessages(plan) * iterations > kMostMessages) return std::nullopt;
  Job tried = job;
  tried.clear_recovery();                        // nobody dies
  tried.mutable_cluster()->clear_disturbance();  // plans are compared with their predictions
  SimulationControl control;
  control.planner = [&plan](const InformationBook&, const Job&) { return plan; };
  try {
    const ModelSpec timed = WithTimes(model, job.cluster().flops());
    return SimulateTraining(tried, timed, steady, {}, control).iteration;
  } catch (const Error&) {
    return std::nullopt;  // what can't be simulated is planned by prediction alone
  }
}

Plan PlanByTrial(const InformationBook& book, const Job& job) {
  return PlanJob(book, job, TryPlan);
}

}  // namespace poseidon
