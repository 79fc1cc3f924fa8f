#include "planner/replan.h"

#include <cstdio>
#include <map>

#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "planner/job_plan.h"
#include "planner/predictor.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// By how much of the current iteration another plan must be predicted to be shorter: less is within
// what predictions are off, and a switch costs about as much as the start of the job.
constexpr double kWorthwhileGain = 0.05;

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

// The workers' mean computing time, against that of one that is not known to deviate.
double MeanComputeFactor(const ClusterModel& cluster) {
  double sum = 0;
  for (int worker = 0; worker < cluster.workers; ++worker) sum += cluster.ComputeFactorOf(worker);
  return sum / cluster.workers;
}

}  // namespace

Replanned Replan(const Job& job, const wire::PlanAndModel& current,
                 const wire::LayerTimes& measured, const JobPlanTrial& trial) {
  wire::PlanAndModel next;
  *next.mutable_model() = current.model();
  *next.mutable_network() = job.cluster().network();
  // The network as it was known when the current plan was made: perhaps measured, too.
  Job measured_job = job;
  if (current.has_network()) {
    *measured_job.mutable_cluster()->mutable_network() = current.network();
    *next.mutable_network() = current.network();
  }
  const ClusterModel cluster = ClusterOf(measured_job);
  const double mean = MeanComputeFactor(cluster);
  for (int layer = 0; layer < next.model().layers_size(); ++layer) {
    next.mutable_model()->mutable_layers(layer)->set_forward_ms(measured.forward_ms(layer) / mean);
    next.mutable_model()->mutable_layers(layer)->set_backward_ms(measured.backward_ms(layer) /
                                                                 mean);
  }
  const InformationBook book(next.model(), job.cluster());
  Predictor predictor(book, cluster);
  Job planned = job;
  planned.mutable_communication()->set_lanes(current.plan().lanes());  // nodes may offer no more
  *next.mutable_plan() = PlanJob(book, planned, trial);
  const double stay = predictor.Predict(current.plan()).seconds;
  const double go = predictor.Predict(next.plan()).seconds;

  Replanned result;
  result.current = current.plan();
  predictor.Annotate(result.current);
  result.why = "with measured layer times the plan's iteration is predicted to take " +
               Milliseconds(stay) +
               " (before: " + Milliseconds(current.plan().iteration_ms() / 1000) +
               "), the best plan's " + Milliseconds(go);
  if (stay - go > kWorthwhileGain * stay) {
    result.why += "; going over to it" + Changes(current.plan(), next.plan());
    result.plan = std::move(next);
  }
  return result;
}

}  // namespace poseidon
