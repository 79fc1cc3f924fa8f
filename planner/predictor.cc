#include "planner/predictor.h"

#include <algorithm>
#include <cmath>

#include "planner/cost/bucket_costs.h"
#include "planner/cost/exchange_tables.h"
#include "planner/cost/local_steps_model.h"
#include "planner/cost/overlap_estimate.h"
#include "planner/placement.h"
#include "planner/planner.h"
#include "proto/bucket.h"
#include "proto/compatibility.h"

namespace poseidon {
namespace {

constexpr double kMillisecond = 1e-3;

}  // namespace

Predictor::Predictor(const InformationBook& book, const ClusterModel& cluster,
                     const MessageLimits& limits)
    : book_(book),
      cluster_(cluster),
      limits_(limits),
      // A worker's devices compute side by side, each a part of its batch.
      layers_(ComputeTimes(book.model(), cluster.flops * cluster.devices)) {
  const double slowest = cluster.SlowestComputeFactor();
  for (LayerTime& layer : layers_) {
    layer.forward *= slowest;
    layer.backward *= slowest;
    compute_ += layer.forward + layer.backward;
  }
}

PredictedTimes Predictor::Predict(const Plan& plan, double give_up) {
  if (MessagesPerIteration(plan, cluster_) > limits_.predicted) return Estimate(plan);
  return Simulate(plan, give_up);
}

PredictedTimes Predictor::Simulate(const Plan& plan, double give_up) {
  const std::string key = plan.SerializeAsString();
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const auto simulate = [&](const Plan& part, const ModelSpec& model,
                            const std::vector<LayerTime>& layers) {
    // A part has fewer messages than the whole, so maybe another number.
    const int representatives = Representatives(part, cluster_);
    ReduceShapes& shapes = shapes_.try_emplace(representatives, representatives).first->second;
    return SimulateExchange(part, model, cluster_, layers, shapes, give_up);
  };
  PredictedTimes times = plan.local_steps() > 1
                             ? PredictLocalSteps(plan, book_.model(), layers_, simulate)
                             : simulate(plan, book_.model(), layers_);
  // Workers that still catch up with the slowest one take less in some iterations. Those that wait
  // for nobody stay ahead of it.
  if (plan.staleness() >= 0) {
    const int steps = plan.local_steps();
    times.seconds = std::max(times.seconds, steps > 1 ? steps * compute_ : LeastSeconds(plan));
  }
  // Unless it stopped early.
  if (!times.buckets.empty()) known_.emplace(key, times);
  return times;
}

PredictedTimes Predictor::Estimate(const Plan& plan) const {
  const auto estimate = [&](const Plan& part, const ModelSpec& model,
                            const std::vector<LayerTime>& layers) {
    return EstimateIteration(part, BucketLoads(part, model, cluster_), layers);
  };
  return plan.local_steps() > 1 ? PredictLocalSteps(plan, book_.model(), layers_, estimate)
                                : estimate(plan, book_.model(), layers_);
}

double Predictor::LeastSeconds(const Plan& plan) const {
  return poseidon::LeastSeconds(BucketLoads(plan, book_.model(), cluster_), layers_);
}

bool Predictor::IsEstimated(const Plan& plan) const {
  return MessagesPerIteration(plan, cluster_) > limits_.annotated;
}

void Predictor::Annotate(Plan& plan) {
  const PredictedTimes times =
      IsEstimated(plan) ? Estimate(plan) : Simulate(plan, std::numeric_limits<double>::infinity());
  const std::vector<BucketLoad> loads = BucketLoads(plan, book_.model(), cluster_);
  plan.set_iteration_ms(times.seconds / kMillisecond);
  plan.set_compute_ms(ComputeSeconds(plan) / kMillisecond);
  // Copied for every bucket and scheme, so it must not have all the buckets.
  Plan without_buckets = plan;
  without_buckets.clear_buckets();
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const BucketTimes& bucket = times.buckets[b];
    const BucketBytes bytes = BytesOfBucket(plan, plan.buckets(b), book_.model(), cluster_);
    BucketPrediction prediction;
    prediction.set_exchange_ms(bucket.exchange / kMillisecond);
    prediction.set_ready_ms(bucket.ready / kMillisecond);
    prediction.set_sent_ms(bucket.sent / kMillisecond);
    prediction.set_fresh_ms(bucket.fresh / kMillisecond);
    prediction.set_needed_ms(bucket.needed / kMillisecond);
    prediction.set_bytes_sent(bytes.sent);
    prediction.set_bytes_received(bytes.received);
    SetRunnerUp(without_buckets, plan.buckets(b), loads[b].alone, prediction);
    *plan.mutable_buckets(b)->mutable_prediction() = prediction;
  }
}

Predictor& NearestToTrial(Predictor& first, std::span<Predictor> farther, const Plan& plan) {
  if (farther.empty()) return first;
  if (plan.simulated_ms() <= 0) return farther.back();
  const double tried = plan.simulated_ms() * kMillisecond;
  const auto off_by = [&](Predictor& predictor) {
    return std::abs(predictor.Predict(plan).seconds - tried);
  };
  Predictor* nearest = &first;
  double least = off_by(first);
  for (Predictor& predictor : farther) {
    const double off = off_by(predictor);
    if (off >= least) continue;
    least = off;
    nearest = &predictor;
  }
  return *nearest;
}

// The others' time in the plan is taken to differ from this one's as their times alone differ.
void Predictor::SetRunnerUp(const Plan& without_buckets, const BucketPlan& planned, double alone,
                            BucketPrediction& prediction) const {
  // What many steps have changed has no factors.
  const bool factors = planned.layer_count() == 1 &&
                       book_.Query(planned.first_layer()).factorable &&
                       without_buckets.local_steps() <= 1;
  double best = 0;
  for (const Scheme scheme : {PS, SFB, RING, HALVING_DOUBLING, TORUS, ADAM}) {
    if (scheme == planned.scheme() || (UsesFactors(scheme) && !factors)) continue;
    Plan other = without_buckets;
    BucketPlan& changed = *other.add_buckets();
    changed = planned;
    changed.set_scheme(scheme);
    changed.set_codec(UsableCodec(scheme, planned.codec()));
    changed.set_update_at_workers(!UsesServers(scheme) ||
                                  (scheme == PS && changed.codec() != FP32));
    if (scheme == TORUS && other.grid_size() == 0) {
      for (const int size : SquareGrid(other.workers())) {
        other.add_grid()->set_size(size);
        other.mutable_grid(other.grid_size() - 1)->set_algorithm(RING);
      }
    }
    Place(book_, other);
    const double time = BucketLoads(other, book_.model(), cluster_).front().alone;
    if (prediction.runner_up() != SCHEME_UNSPECIFIED && time >= best) continue;
    best = time;
    prediction.set_runner_up(scheme);
  }
  const double difference = (best - alone) / kMillisecond;
  prediction.set_runner_up_ms(std::max(prediction.exchange_ms() + difference, best / kMillisecond));
}

}  // namespace poseidon
