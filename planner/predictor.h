// Predictor: how long an iteration will take under a plan, and each bucket's exchange in it.
//
// Not thread-safe. Deterministic.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/exchange_model.h"
#include "planner/cost/information_book.h"
#include "proto/model.pb.h"

namespace poseidon {

// Plans of which one iteration has more messages are estimated where they are compared. Predicting
// one with that many takes a second or two.
constexpr int64_t kMostMessages = 600'000;

struct MessageLimits {
  int64_t predicted = kMostMessages;
  // Of the plan that was found, which is predicted once: some ten seconds.
  int64_t annotated = 5 * kMostMessages;
};

class Predictor {
 public:
  // The cluster's workers and servers are the book's, which must outlive this.
  Predictor(const InformationBook& book, const ClusterModel& cluster,
            const MessageLimits& limits = {});

  // Message by message where that is quick enough, else as Estimate. All predictions for one
  // cluster and model that are compared with each other are made in the same way.
  // Above `give_up` seconds it may stop early, with no more than that it takes longer.
  PredictedTimes Predict(const Plan& plan,
                         double give_up = std::numeric_limits<double>::infinity());
  // By the loads of links alone.
  PredictedTimes Estimate(const Plan& plan) const;
  // Below this no plan with the same buckets, schemes and places can come.
  double LeastSeconds(const Plan& plan) const;
  // How long a step takes without any exchange, at the slowest worker; and an iteration of the
  // plan, which may be many steps.
  double ComputeSeconds() const { return compute_; }
  double ComputeSeconds(const Plan& plan) const {
    return std::max(1, plan.local_steps()) * compute_;
  }

  // Sets the plan's iteration_ms and compute_ms and all buckets' predictions: message by message,
  // unless IsEstimated. A runner-up is the scheme that would be best for the bucket among those
  // that it does not have, everything else being as planned.
  void Annotate(Plan& plan);

  // Whether Annotate only estimates the plan.
  bool IsEstimated(const Plan& plan) const;

  const InformationBook& book() const { return book_; }
  const ClusterModel& cluster() const { return cluster_; }

 private:
  PredictedTimes Simulate(const Plan& plan, double give_up);
  void SetRunnerUp(const Plan& without_buckets, const BucketPlan& planned, double alone,
                   BucketPrediction& prediction) const;

  const InformationBook& book_;
  ClusterModel cluster_;
  MessageLimits limits_;
  std::vector<LayerTime> layers_;  // the slowest worker's
  double compute_ = 0;
  // Message by message, by the plan serialized: a plan that is found is predicted when it is
  // tried, when it is compared with its likes, and when it is annotated.
  std::map<std::string, PredictedTimes> known_;
  std::map<int, ReduceShapes> shapes_;  // by representatives
};

// Of predictors for clusters that stand for one network in tiers the one that sees the plan most as
// its trial did (simulated_ms); the last one, if it was not tried.
Predictor& NearestToTrial(Predictor& first, std::span<Predictor> farther, const Plan& plan);

}  // namespace poseidon
