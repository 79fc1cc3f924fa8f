#include "planner/what_limits.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "core/time.h"
#include "planner/cost/exchange_tables.h"
#include "planner/model_times.h"
#include "planner/placement.h"
#include "planner/predictor.h"

namespace poseidon {
namespace {

// A rate at which nothing takes any time to speak of.
constexpr double kFree = 1e18;
// Of the layers' times.
constexpr double kNothing = 1e-9;
// Gains below this are not worth a line.
constexpr double kWorthSaying = 0.99;

// Messages of an iteration above which predictions, of which there are some twenty, are estimates.
constexpr int64_t kMostPredicted = 50'000;

// Causes.
constexpr char kNetwork[] = "the network";
constexpr char kMessages[] = "messages on lanes";
constexpr char kUpdates[] = "updates";
constexpr char kSums[] = "sums of gradients";
constexpr char kRebuilding[] = "rebuilding from factors";
constexpr char kCopies[] = "copies to and from devices";
constexpr char kComputing[] = "computing";

// A cluster, and what it does.
struct Variant {
  ClusterModel cluster;
  Plan plan;
};

class Predictions {
 public:
  Predictions(const Plan& plan, const InformationBook& book, const ClusterModel& cluster)
      : plan_(plan),
        book_(book),
        cluster_(cluster),
        // Whatever becomes of flops, the layers take as long as they do.
        timed_(WithTimes(book.model(), cluster.flops * cluster.devices), cluster.workers,
               cluster.servers),
        estimated_(MessagesPerIteration(plan, cluster) > kMostPredicted),
        // Of a large plan that has been predicted that is not done again, as it takes seconds.
        now_(estimated_ && plan.iteration_ms() > 0
                 ? plan.iteration_ms() / kMillisecondsPerSecond
                 : Predictor(timed_, cluster).Predict(plan).seconds),
        scale_(estimated_ ? now_ / Predictor(timed_, cluster).Estimate(plan).seconds : 1) {}

  bool estimated() const { return estimated_; }
  double now() const { return now_; }
  bool now_estimated() const { return Predictor(timed_, cluster_).IsEstimated(plan_); }

  double Seconds(const std::function<void(Variant&)>& change) const {
    Variant variant{cluster_, plan_};
    change(variant);
    if (variant.plan.lanes() != plan_.lanes()) Place(book_, variant.plan);
    Predictor predictor(timed_, variant.cluster);
    if (!estimated_) return predictor.Predict(variant.plan).seconds;
    // Of two estimates the ratio says more than the second one does; but of the computing in it no
    // estimate is wrong.
    const double scaled = scale_ * predictor.Estimate(variant.plan).seconds;
    const bool waits = plan_.staleness() >= 0;  // for the slowest worker
    return waits ? std::max(scaled, predictor.ComputeSeconds(variant.plan)) : scaled;
  }

 private:
  const Plan& plan_;
  const InformationBook& book_;
  const ClusterModel& cluster_;
  InformationBook timed_;
  bool estimated_;
  double now_;    // seconds, as it is
  double scale_;  // of what estimates say
};

// The links of all machines that have no rate of their own, as --bandwidth says.
void DoubleBandwidth(Variant& variant) {
  variant.cluster.goodput *= 2;
  for (auto& [machine, deviation] : variant.cluster.deviations) {
    if (deviation.link_share != 1) deviation.link_share /= 2;
  }
}

void MendSlowLinks(Variant& variant) {
  for (auto& [machine, deviation] : variant.cluster.deviations) {
    deviation.link_share = std::max(deviation.link_share, 1.0);
  }
}

// Of links all of which are slow there are no others to be as fast as.
const char* SlowLinksMended(const ClusterModel& cluster) {
  const auto slow = std::ranges::count_if(
      cluster.deviations, [](const auto& entry) { return entry.second.link_share < 1; });
  return slow < cluster.machines() ? "slow links as fast as the others"
                                   : "all links of the network's bandwidth";
}

void FreeNetwork(Variant& variant) {
  variant.cluster.goodput = kFree;
  variant.cluster.latency = 0;
}

// By devices and by lanes.
void RebuildFaster(Variant& variant, double factor) {
  variant.cluster.flops *= factor;
  variant.cluster.host_flops *= factor;
}

void FreeLanes(Variant& variant) {
  variant.cluster.message_cost = 0;
  variant.cluster.reduction_rate = kFree;
  variant.cluster.update_rate = kFree;
  RebuildFaster(variant, kFree);
}

// Of hosts and of devices.
void FreeUpdates(Variant& variant) {
  variant.cluster.update_rate = kFree;
  variant.cluster.device_update_rate = kFree;
}

void FreeCopies(Variant& variant) {
  variant.cluster.copy_rate = kFree;
  variant.cluster.device_rate = kFree;
}

// What can be had to make an iteration shorter.
struct Change {
  std::string what;
  std::string_view cause;  // of those in FindLimit; empty: of none of them
  std::function<void(Variant&)> change;
};

std::string RateChange(const char* name, double rate, double factor) {
  char text[100];
  std::snprintf(text, sizeof text, "%s %.3g -> %.3g", name, rate, factor * rate);
  return text;
}

std::vector<Change> ChangesOf(const Plan& plan, const ClusterModel& cluster) {
  constexpr double kCores = 4;  // by as many a sum or an update is quickly spread
  const int lanes = std::max(4, 2 * plan.lanes());
  return {
      {"twice the bandwidth", kNetwork, DoubleBandwidth},
      {SlowLinksMended(cluster), kNetwork, MendSlowLinks},
      {"half the latency", kNetwork, [](Variant& v) { v.cluster.latency /= 2; }},
      {"lanes " + std::to_string(plan.lanes()) + " -> " + std::to_string(lanes), "",
       [lanes](Variant& v) { v.plan.set_lanes(lanes); }},
      {RateChange("update_rate", cluster.update_rate, kCores), kUpdates,
       [](Variant& v) { v.cluster.update_rate *= kCores; }},
      {"twice the copy_bandwidth", kCopies, [](Variant& v) { v.cluster.copy_rate *= 2; }},
      {"twice the gpu_bandwidth", kCopies, [](Variant& v) { v.cluster.device_rate *= 2; }},
      {RateChange("reduction_rate", cluster.reduction_rate, kCores), kSums,
       [](Variant& v) { v.cluster.reduction_rate *= kCores; }},
      {"rebuilding from factors four times as fast", kRebuilding,
       [](Variant& v) { RebuildFaster(v, kCores); }},
      {"half the message_cost", kMessages, [](Variant& v) { v.cluster.message_cost /= 2; }},
      {"computing twice as fast", kComputing, [](Variant& v) { v.cluster.compute_factor *= 0.5; }}};
}

// `gains`: by cause, the least seconds of the changes that belong to it.
void FindLimit(const Predictions& predictions, const std::map<std::string_view, double>& gains,
               Limits& limits) {
  const std::pair<const char*, std::function<void(Variant&)>> causes[] = {
      {kNetwork, FreeNetwork},
      {kMessages, [](Variant& v) { v.cluster.message_cost = 0; }},
      {kUpdates, FreeUpdates},
      {kSums, [](Variant& v) { v.cluster.reduction_rate = kFree; }},
      {kRebuilding, [](Variant& v) { RebuildFaster(v, kFree); }},
      {kCopies, FreeCopies},
      {"what lanes do", FreeLanes}};
  // Messages that take no time can meet where slower ones did not, and then wait for each other:
  // less is not always better. So what a cause costs is the most that anything in it gains.
  const auto least = [&](const char* cause, double free) {
    const auto found = gains.find(cause);
    return found == gains.end() ? free : std::min(free, found->second);
  };
  limits.by = kComputing;
  limits.without = limits.seconds;
  for (const auto& [cause, change] : causes) {
    const double free = predictions.Seconds(change);
    const double without = least(cause, free);
    // What all that lanes do gains must be clearly more than the best part of it.
    if (without >= limits.without * kWorthSaying) continue;
    limits.by = cause;
    limits.without = without;
    limits.at_best = without < free;
  }
  if (limits.by != kComputing) return;
  const auto no_computing = [](Variant& v) { v.cluster.compute_factor *= kNothing; };
  const double free = predictions.Seconds(no_computing);
  limits.without = least(kComputing, free);
  limits.at_best = limits.without < free;
  const double both = predictions.Seconds([](Variant& v) {
    FreeNetwork(v);
    FreeLanes(v);
    FreeUpdates(v);
    FreeCopies(v);
  });
  if (both >= limits.seconds * kWorthSaying) return;
  limits.by = "several things at once";
  limits.without = both;
  limits.at_best = false;
}

}  // namespace

Limits WhatLimits(const Plan& plan, const InformationBook& book, const ClusterModel& cluster) {
  const Predictions predictions(plan, book, cluster);
  Limits limits;
  limits.seconds = predictions.now();
  limits.seconds_estimated = predictions.now_estimated();
  limits.estimated = predictions.estimated();
  std::map<std::string_view, double> gains;
  for (const auto& [what, cause, change] : ChangesOf(plan, cluster)) {
    const double seconds = predictions.Seconds(change);
    double& least = gains.try_emplace(cause, seconds).first->second;
    least = std::min(least, seconds);
    if (seconds < limits.seconds * kWorthSaying) limits.improvements.push_back({what, seconds});
    if (cause == kNetwork && seconds * kWorthSaying > limits.seconds) {
      limits.setbacks.push_back({what, seconds});
    }
  }
  FindLimit(predictions, gains, limits);
  std::stable_sort(
      limits.improvements.begin(), limits.improvements.end(),
      [](const Improvement& a, const Improvement& b) { return a.seconds < b.seconds; });
  return limits;
}

Limits OfAStep(Limits limits, int steps) {
  limits.seconds /= steps;
  limits.without /= steps;
  for (Improvement& improvement : limits.improvements) improvement.seconds /= steps;
  for (Improvement& setback : limits.setbacks) setback.seconds /= steps;
  return limits;
}

}  // namespace poseidon
