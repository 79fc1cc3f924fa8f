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
  // An iteration takes time that does not depend on the part, too, so a worker with a small part
  // seems slower than it is, and giving it more seems to gain less. One with less than the first
  // share of an equal part, whose own time is below the second share of the slowest one's, gets
  // more if that is at least the third times what it has. Where it had to be taken back this is
  // tried again when the worker has become the fourth times as fast.
  static constexpr double kSmallPart = 0.5;
  static constexpr double kIdle = 0.8;
  static constexpr double kWorthwhileGrowth = 1.2;
  static constexpr double kHealed = 1.2;

  struct Rebalanced {
    std::vector<int64_t> parts;  // by place
    std::string why;             // for people
  };

  // Only progress under this plan counts from now on. A plan without parts is never rebalanced.
  void SetPlan(const Plan& plan);
  // What was measured counts no more: the job has lost a node.
  void Forget();
  // An iteration that a worker has done, its rank set. Set if other parts pay.
  std::optional<Rebalanced> Add(const wire::Progress& progress);

 private:
  // A part that was given to a worker which seemed slower than it is.
  struct Growth {
    int64_t part = 0;  // before it
    double speed = 0;  // samples a second, with that part
    bool undone = false;
  };

  std::optional<Rebalanced> Decide(int64_t left);
  // A worker with a small part could do more than that.
  bool IsUnderrated(int place, double own, double slowest, int64_t next) const;

  Plan plan_;
  std::map<int, std::vector<double>> seconds_;  // by place: a worker's own, an iteration
  std::map<int, Growth> growths_;               // by place: the last one
};

}  // namespace poseidon
