// BatchBalancer: measures how fast the workers of a job with a balanced batch are, and says when
// other parts of the batch are worth going over to.
//
//   BatchBalancer balancer;
//   balancer.SetPlan(plan);
//   if (auto parts = balancer.Add(progress)) SwitchTo(*parts);
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// A value; not thread-safe.
class BatchBalancer {
 public:
  // Speeds are medians over so many iterations of each worker.
  static constexpr int kIterations = 20;
  // Going over costs a broadcast of the model, and what is measured is noisy: the slowest worker's
  // own time must become shorter by this share of it, at least.
  static constexpr double kWorthwhileGain = 0.1;

  struct Rebalanced {
    std::vector<int64_t> parts;  // by place
    std::string why;             // for people
  };

  // Only progress under this plan counts from now on. A plan without parts is never rebalanced.
  void SetPlan(const Plan& plan);
  // What was measured counts no more: the job has lost a node.
  void Forget() { seconds_.clear(); }
  // An iteration that a worker has done, its rank set. Set if other parts pay.
  std::optional<Rebalanced> Add(const wire::Progress& progress);

 private:
  std::optional<Rebalanced> Decide(int64_t left) const;

  Plan plan_;
  std::map<int, std::vector<double>> seconds_;  // by place: a worker's own, an iteration
};

}  // namespace poseidon
