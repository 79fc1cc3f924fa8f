// IterationRecord: when the workers of the exchange model finished their iterations and had their
// buckets, until the iterations take the same time.
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

class IterationRecord {
 public:
  IterationRecord(int workers, int buckets) : workers_(workers), buckets_(buckets) {}

  // The exchange of a bucket's gradient of `iteration`, at one worker.
  void AddExchange(int iteration, int bucket, const ExchangeMoments& moments);
  // One worker ends the iteration `seconds` after the start; true if it is the last one.
  bool AddEnd(int iteration, double seconds);
  // Whether nothing would be learnt from more iterations. Every worker has ended this one.
  bool IsSteady(int iteration) const;
  // The last iteration that all workers have finished; the third at least.
  PredictedTimes Result() const;

 private:
  double Length(int iteration) const { return ends_[iteration] - ends_[iteration - 1]; }
  // To the iteration before.
  bool IsAlike(int iteration) const;

  int workers_;
  int buckets_;
  // By iteration.
  std::vector<std::vector<BucketTimes>> times_;
  std::vector<double> ends_;   // mean over workers, seconds
  std::vector<int> finished_;  // workers
};

}  // namespace poseidon
