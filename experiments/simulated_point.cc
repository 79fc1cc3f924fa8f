#include "experiments/simulated_point.h"

#include <numeric>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "core/program.h"
#include "core/time.h"
#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "planner/job_plan.h"
#include "proto/bucket.h"
#include "simulation/failures/failure_answer.h"
#include "simulation/plan_trial.h"
#include "simulation/training_simulation.h"

namespace poseidon {
namespace {

// `job` is the point's, disturbed as it was for `training`. Where it recovers nobody asks for what
// restarts would be, so that `training` need not be of a job without recovery.
double GoodputOf(const ExperimentPoint& point, const Job& job, const SimulatedTraining& training,
                 const SimulationControl& control) {
  const Failures& failures = *point.failures;
  FailureScenario scenario;
  scenario.mtbf = ParsePositiveSeconds("mtbf", failures.mtbf(0));
  scenario.replacement = ParseReplacementSeconds("replacement", failures.replacement());
  scenario.seed = failures.seed();
  scenario.losses = failures.losses();
  std::optional<double> snapshot;
  if (failures.has_snapshot_cost()) {
    snapshot = ParsePositiveSeconds("snapshot_cost", failures.snapshot_cost());
  }
  return AnswerFailures(job, point.model, scenario, ParseRecoveryChoice(point.recovery), snapshot,
                        training, control)
      .Goodput();
}

// Of a step, as all other times are, though a plan's are of all local steps between exchanges.
double PredictedSeconds(const ExperimentPoint& point, const Plan& plan) {
  return ExpectedIterationMs(plan) / kMillisecondsPerSecond /
         point.job.communication().local_steps();
}

void ThrowIfStopped(const std::stop_token& stop) {
  if (stop.stop_requested()) throw Interrupted();
}

PointResult Simulated(const ExperimentPoint& point, const JobPlanner& planner,
                      const std::stop_token& stop, int simulations) {
  Job unlike = point.job;
  unlike.mutable_cluster()->mutable_deviation()->MergeFrom(point.condition.deviation());
  const SteadyIterations steady = {.warm_up = WarmUpIterations(unlike),
                                   .measured = point.iterations};
  SimulationControl control;
  control.planner = planner;
  control.simulations = simulations;
  control.progress = [&stop](const SimulationProgress&) { ThrowIfStopped(stop); };
  Job job = point.job;
  DisturbUnlessSaid(*job.mutable_cluster());
  const SimulatedTraining training =
      SimulateTraining(job, point.model, steady, point.condition, control);
  PointResult result;
  result.iteration = training.iteration;
  result.compute = training.compute;
  result.busy = training.busy;
  result.bytes_sent = training.bytes_sent;
  result.bytes_received = training.bytes_received;
  result.mean_bytes = training.mean_bytes;
  result.predicted = PredictedSeconds(point, training.plan);
  result.schemes = training.schemes;
  if (point.failures) result.goodput = GoodputOf(point, job, training, control);
  return result;
}

// By worker, how long it computes in an iteration, where the usual one does for `usual` seconds.
std::vector<double> ComputingOf(const ClusterModel& cluster, double usual) {
  std::vector<double> seconds;
  for (int worker = 0; worker < cluster.workers; ++worker) {
    seconds.push_back(usual * cluster.ComputeFactorOf(worker));
  }
  return seconds;
}

// The share of its own iteration that a worker computes, the mean over all, if they wait for nobody
// and so many iterations are done as if all together took `iteration` for each.
double BusyShareOfEach(const std::vector<double>& computing, double iteration) {
  const double rates = static_cast<double>(computing.size()) / iteration;
  // How long each waits for its exchange, taken to be alike: the rates with it add up to those.
  double wait = 0;
  double most = iteration * static_cast<double>(computing.size());
  constexpr int kHalvings = 50;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (wait + most) / 2;
    double sum = 0;
    for (const double seconds : computing) sum += 1 / (seconds + middle);
    (sum > rates ? wait : most) = middle;
  }
  double shares = 0;
  for (const double seconds : computing) shares += seconds / (seconds + wait);
  return shares / static_cast<double>(computing.size());
}

// Likewise of an iteration's `seconds`, by the computing of a usual worker.
double BusyShare(const Job& job, double usual, double seconds) {
  if (seconds <= 0) return 1;
  const std::vector<double> computing = ComputingOf(ClusterOf(job), usual);
  if (job.communication().staleness() < 0) return BusyShareOfEach(computing, seconds);
  const double sum = std::accumulate(computing.begin(), computing.end(), 0.0);
  return sum / static_cast<double>(computing.size()) / seconds;
}

PointResult Planned(const ExperimentPoint& point, const JobPlanner& planner) {
  const Cluster& cluster = point.job.cluster();
  const Plan plan = planner(InformationBook(point.model, cluster), point.job);
  PointResult result;
  result.predicted = PredictedSeconds(point, plan);
  result.iteration = result.predicted;
  for (const LayerTime& layer : ComputeTimes(point.model, cluster.flops())) {
    result.compute += layer.forward + layer.backward;
  }
  result.busy = BusyShare(point.job, result.compute, result.iteration);
  const double steps = point.job.communication().local_steps();
  for (const BucketPlan& bucket : plan.buckets()) {
    result.bytes_sent += static_cast<double>(bucket.prediction().bytes_sent()) / steps;
    result.bytes_received += static_cast<double>(bucket.prediction().bytes_received()) / steps;
  }
  result.schemes = SchemeSummary(plan);
  return result;
}

}  // namespace

PointResult SimulatePoint(const ExperimentPoint& point, const std::stop_token& stop,
                          int simulations) {
  const JobPlanner planner = [&stop](const InformationBook& book, const Job& job) {
    Plan plan = PlanJob(book, job, TryPlan, stop);
    ThrowIfStopped(stop);  // it may be any
    return plan;
  };
  try {
    return point.plan_only ? Planned(point, planner) : Simulated(point, planner, stop, simulations);
  } catch (const Error&) {
    // What its planner throws is the simulated scheduler's own failure.
    ThrowIfStopped(stop);
    throw;
  }
}

}  // namespace poseidon
