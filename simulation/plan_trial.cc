#include "simulation/plan_trial.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/error.h"
#include "planner/job_plan.h"
#include "planner/model_times.h"
#include "proto/bucket.h"
#include "simulation/simulation_size.h"
#include "simulation/training_simulation.h"

namespace poseidon {
namespace {

// Of a short trial, some 1.5 seconds on one core. A ring of ten workers takes VGG19 half of it.
constexpr double kMostMessagesOfShort = 500'000;

// Bytes of a trial's nodes, as of 6,000 workers of a small net, each with a server. A search makes
// two at a time, and an experiment searches for as many plans at once as it has threads.
constexpr double kMostMemory = 0.25e9;

// Of a long trial, some 0.2 seconds.
constexpr double kMostMessagesOfLong = 60'000;
// By then most workers are as far apart as they stay (docs/measurements/random_plans.md).
constexpr int kLongWarmUp = 40;
constexpr int kLongMeasured = 20;

// As WarmUpIterations, but by the plan's own schemes.
SteadyIterations ShortIterations(const Plan& plan, const Job& job) {
  constexpr int kAlike = 2;
  constexpr int kApart = 6;
  const bool in_pairs =
      std::any_of(plan.buckets().begin(), plan.buckets().end(), [](const BucketPlan& bucket) {
        return bucket.scheme() == HALVING_DOUBLING || bucket.scheme() == TORUS;
      });
  const bool apart = in_pairs || plan.staleness() != 0 || job.cluster().deviation_size() > 0;
  return {.warm_up = apart ? kApart : kAlike, .measured = 3};
}

// As many as the plan's messages allow; none if that is no more than a short trial has.
std::optional<SteadyIterations> LongIterations(const Plan& plan, const SteadyIterations& shorter) {
  constexpr int kMost = kLongWarmUp + kLongMeasured;
  const double share = std::min(1.0, kMostMessagesOfLong / DataMessages(plan) / kMost);
  const SteadyIterations longer = {.warm_up = static_cast<int>(share * kLongWarmUp),
                                   .measured = static_cast<int>(share * kLongMeasured)};
  if (longer.warm_up <= shorter.warm_up || longer.measured < shorter.measured) return std::nullopt;
  return longer;
}

}  // namespace

std::optional<double> TryPlan(const Plan& plan, const Job& job, const ModelSpec& model,
                              TrialLength length) {
  const SteadyIterations shorter = ShortIterations(plan, job);
  const int iterations = shorter.warm_up + shorter.measured;
  if (DataMessages(plan) * iterations > kMostMessagesOfShort ||
      NodeMemory(job.cluster(), model.layers_size(), iterations) > kMostMemory) {
    return std::nullopt;
  }
  const std::optional<SteadyIterations> steady =
      length == TrialLength::kLong ? LongIterations(plan, shorter) : shorter;
  if (!steady) return std::nullopt;
  Job tried = job;
  tried.mutable_cluster()->clear_disturbance();  // plans are compared with their predictions
  SimulationControl control;
  control.planner = [&plan](const InformationBook&, const Job&) { return plan; };
  // What it takes is bounded above. What a machine has left, or other simulations of this process
  // take meanwhile, must not decide which plan is made.
  control.memory = std::numeric_limits<int64_t>::max();
  try {
    const ModelSpec timed =
        WithTimes(model, job.cluster().flops() * job.cluster().devices_per_worker());
    return SimulateTraining(tried, timed, *steady, {}, control).iteration;
  } catch (const Error&) {
    return std::nullopt;  // what can't be simulated is planned by prediction alone
  }
}

Plan PlanByTrial(const InformationBook& book, const Job& job) {
  return PlanJob(book, job, TryPlan);
}

}  // namespace poseidon
