// Predictor: how long an iteration will take under a plan, and each bucket's exchange in it.
//
// Not thread-safe. Deterministic.
#pragma once

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

class Predictor {
 public:
  // The cluster's workers and servers are the book's, which must outlive this.
  Predictor(const InformationBook& book, const ClusterModel& cluster);

  // Message by message where that is quick enough, else as Estimate. All predictions for one
  // cluster and model that are compared with each other are made in the same way.
  // Above `give_up` seconds it may stop early, with no more than that it takes longer.
  PredictedTimes Predict(const Plan& plan,
                         double give_up = std::numeric_limits<double>::infinity());
  // By the loads of links alone.
  PredictedTimes Estimate(const Plan& plan) const;
  // Below this no plan with the same buckets, schemes and places can come.
  double LeastSeconds(const Plan& plan) const;
  // How long an iteration takes without any exchange, at the slowest worker.
  double ComputeSeconds() const { return compute_; }

  // Sets the plan's iteration_ms and compute_ms and all buckets' predictions. A runner-up is the
  // scheme that would be best for the bucket among those that it does not have, everything else
  // being as planned.
  void Annotate(Plan& plan);

  const InformationBook& book() const { return book_; }
  const ClusterModel& cluster() const { return cluster_; }

 private:
  void SetRunnerUp(const Plan& without_buckets, const BucketPlan& planned, double alone,
                   BucketPrediction& prediction) const;

  const InformationBook& book_;
  ClusterModel cluster_;
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

// Plans of which one iteration has more messages are estimated. Predicting one with that many takes
// about a second.
constexpr int64_t kMostMessages = 600000;

}  // namespace poseidon
