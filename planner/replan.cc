#include "planner/replan.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "planner/job_plan.h"
#include "planner/predictor.h"
#include "proto/bucket.h"
#include "proto/plan_members.h"

namespace poseidon {
namespace {

// By how much of the current iteration another plan must be predicted to be shorter. Less is within
// what predictions are off, but where both plans were tried in virtual time, most of what that is
// off is so for both. A switch costs about as much as the start of the job, so that a gain of a
// fiftieth pays after some hundred iterations.
constexpr double kWorthwhileGain = 0.05;
constexpr double kWorthwhileGainTried = 0.02;

std::string Milliseconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f ms", 1000 * seconds);
  return text;
}

// "SFB", "PS, 1-bit"
std::string Describe(const BucketPlan& bucket) {
  std::string text = SchemeName(bucket.scheme());
  if (bucket.codec() != FP32) text += ", " + CodecName(bucket.codec());
  return text;
}

// A line for each bucket that the current plan does not have like this.
std::string Changes(const Plan& current, const Plan& next) {
  std::map<std::string, const BucketPlan*> before;
  for (const BucketPlan& bucket : current.buckets()) before[bucket.name()] = &bucket;
  std::string text;
  for (const BucketPlan& bucket : next.buckets()) {
    const auto found = before.find(bucket.name());
    if (found == before.end()) {
      text += "\n  bucket " + bucket.name() + ": new, " + Describe(bucket);
    } else if (Describe(bucket) != Describe(*found->second)) {
      text += "\n  bucket " + bucket.name() + ": " + Describe(*found->second) + " -> " +
              Describe(bucket);
    }
  }
  return text.empty() ? "\n  the same buckets in other chunks" : text;
}

// The plan as if it were the first one of a job that begins with these workers and servers.
Plan OfItsOwn(Plan plan) {
  plan.clear_number();
  plan.clear_layout();
  plan.clear_start_iteration();
  plan.clear_worker_ranks();
  plan.clear_server_ranks();
  plan.clear_tenures();
  plan.clear_holders();
  for (BucketPlan& bucket : *plan.mutable_buckets()) {
    for (Chunk& chunk : *bucket.mutable_chunks()) {
      chunk.clear_recipient();
      chunk.clear_backup();
    }
  }
  return plan;
}

// The job of those who take part in the plan, on the network as it was known when that was made:
// perhaps measured, too.
Job KnownUnder(const wire::PlanAndModel& current, Job job) {
  Cluster& cluster = *job.mutable_cluster();
  cluster.set_workers(current.plan().workers());
  cluster.set_servers(current.plan().servers());
  KeepDeviations(RanksOfWorkers(current.plan()), cluster);
  if (current.has_network()) *cluster.mutable_network() = current.network();
  return job;
}

}  // namespace

double MeanComputeFactor(const Job& job, const wire::PlanAndModel& current) {
  const ClusterModel cluster = ClusterOf(KnownUnder(current, job));
  double sum = 0;
  for (int worker = 0; worker < cluster.workers; ++worker) sum += cluster.ComputeFactorOf(worker);
  return sum / cluster.workers;
}

Replanned Replan(const Job& job, const wire::PlanAndModel& current,
                 const wire::LayerTimes& measured, double factor, const JobPlanTrial& trial,
                 const std::stop_token& stop) {
  const Job known = KnownUnder(current, job);
  const ClusterModel cluster = ClusterOf(known);
  wire::PlanAndModel next;
  *next.mutable_model() = current.model();
  *next.mutable_network() = known.cluster().network();
  for (int layer = 0; layer < next.model().layers_size(); ++layer) {
    LayerSpec& spec = *next.mutable_model()->mutable_layers(layer);
    spec.set_forward_ms(measured.forward_ms(layer) / factor);
    spec.set_backward_ms(measured.backward_ms(layer) / factor);
  }
  const InformationBook book(next.model(), known.cluster());
  Job planned = known;
  planned.mutable_communication()->set_lanes(current.plan().lanes());  // nodes may offer no more
  *next.mutable_plan() = PlanJob(book, planned, trial, stop);
  if (stop.stop_requested()) throw Error(ExitCode::kInterrupted, "nobody waits for the plan");

  Replanned result;
  result.current = current.plan();
  result.current.clear_simulated_ms();
  if (next.plan().simulated_ms() > 0) {
    const auto try_plan = [&](const Plan& plan, TrialLength length) {
      return trial(OfItsOwn(plan), planned, book.model(), length);
    };
    // Both in trials of one length: what only one of them shows is no reason to go over.
    std::optional<double> stay = try_plan(current.plan(), TrialLength::kLong);
    std::optional<double> go = try_plan(next.plan(), TrialLength::kLong);
    if (!stay || !go) {
      stay = try_plan(current.plan(), TrialLength::kShort);
      // What the best plan has come with is of a short trial if it has no long one.
      if (go) go = try_plan(next.plan(), TrialLength::kShort);
      if (!go) go = next.plan().simulated_ms() / kMillisecondsPerSecond;
    }
    if (stay && go) {
      result.current.set_simulated_ms(kMillisecondsPerSecond * *stay);
      next.mutable_plan()->set_simulated_ms(kMillisecondsPerSecond * *go);
    }
  }
  std::vector<Predictor> predictors;
  for (const ClusterModel& farther : FartherClusters(known)) predictors.emplace_back(book, farther);
  Predictor predictor(book, cluster);
  Predictor& nearest = NearestToTrial(predictor, predictors, result.current);
  nearest.Annotate(result.current);
  const bool tried = result.current.simulated_ms() > 0;
  // Both in trials, or predicted in the same way.
  const auto expected = [&](const Plan& plan) {
    return tried ? plan.simulated_ms() / kMillisecondsPerSecond : nearest.Predict(plan).seconds;
  };
  const double stay = expected(result.current);
  const double go = expected(next.plan());
  result.why =
      "with measured layer times the plan's iteration is predicted to take " + Milliseconds(stay) +
      " (before: " + Milliseconds(ExpectedIterationMs(current.plan()) / kMillisecondsPerSecond) +
      "), the best plan's " + Milliseconds(go);
  // The layers' times are not what decides where nothing hides behind them.
  const bool may_change = current.plan().local_steps() <= 1;
  if (may_change && stay - go > (tried ? kWorthwhileGainTried : kWorthwhileGain) * stay) {
    result.why += "; going over to it" + Changes(current.plan(), next.plan());
    result.plan = std::move(next);
  }
  return result;
}

void CopyPredictions(const Plan& from, Plan& to) {
  if (from.layout() != to.layout()) return;
  to.set_iteration_ms(from.iteration_ms());
  to.set_compute_ms(from.compute_ms());
  to.set_simulated_ms(from.simulated_ms());
  for (int b = 0; b < std::min(from.buckets_size(), to.buckets_size()); ++b) {
    *to.mutable_buckets(b)->mutable_prediction() = from.buckets(b).prediction();
  }
}

}  // namespace poseidon
