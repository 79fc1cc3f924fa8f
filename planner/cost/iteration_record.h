// IterationRecord: when the workers of the exchange model finished their iterations and had their
// buckets, until the iterations take the same time; and what an iteration of all of them is, which
// simulations measure by, too.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/predicted_times.h"

namespace poseidon {

// One bucket's exchange as one worker saw it. Nanoseconds.
struct ExchangeMoments {
  int64_t began = 0;  // the iteration of the gradient
  int64_t ready = 0;
  int64_t sent = 0;
  int64_t fresh = 0;
  int64_t needed = 0;
};

// How workers' iterations come together to one of all.
enum class JointPace {
  kTogether,   // all take as long, and differ by what a few iterations do
  kSlowest,    // those that are faster have used up the lead that they may have
  kEachItsOwn  // nobody waits for anybody
};

// `staleness` is communication.staleness. `alike`: no machine is known to differ. Where one does,
// the others come to be ahead by the staleness only after more iterations than are looked at.
JointPace PaceOf(int staleness, bool alike);

// What an iteration takes all workers, at least one, together, of what it takes each of them: so
// long do they take for as many iterations as they are. At their own pace rates add up: of 1 s and
// 2 s it is 4/3 s.
double SecondsOfAll(JointPace pace, const std::vector<double>& workers);

class IterationRecord {
 public:
  IterationRecord(int workers, int buckets, JointPace pace)
      : workers_(workers), buckets_(buckets), pace_(pace) {}

  // The exchange of a bucket's gradient of `iteration`, at one worker.
  void AddExchange(int iteration, int bucket, const ExchangeMoments& moments);
  // A worker ends the iteration `seconds` after the start; true if it is the last one.
  bool AddEnd(int iteration, int worker, double seconds);
  // Whether nothing would be learnt from more iterations. Every worker has ended this one.
  bool IsSteady(int iteration) const;
  // The last iteration that all workers have finished; the third at least.
  PredictedTimes Result() const;

 private:
  // Of one iteration of all workers together, in the mean of the last `count` up to this one.
  double Length(int iteration, int count = 1) const;
  // To the iteration before.
  bool IsAlike(int iteration) const;

  int workers_;
  int buckets_;
  JointPace pace_;
  // By iteration.
  std::vector<std::vector<BucketTimes>> times_;
  std::vector<std::vector<double>> ends_;  // by worker, seconds
  std::vector<double> mean_ends_;          // of all workers
  std::vector<int> finished_;              // workers
};

}  // namespace poseidon
