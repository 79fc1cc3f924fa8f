#include "planner/cost/iteration_record.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "planner/cost/nanoseconds.h"

namespace poseidon {
namespace {

// Iterations are simulated until two in a row differ by less than this share.
constexpr double kSteady = 0.002;
// The first two find an emptier network than the others; iterations that keep swinging are averaged
// over the last few.
constexpr int kFirstSteady = 2;
constexpr int kMostIterations = 7;
constexpr int kAveraged = 4;

}  // namespace

JointPace PaceOf(int staleness, bool alike) {
  if (staleness < 0) return JointPace::kEachItsOwn;
  return staleness > 0 && !alike ? JointPace::kSlowest : JointPace::kTogether;
}

double SecondsOfAll(JointPace pace, const std::vector<double>& workers) {
  const auto count = static_cast<double>(workers.size());
  switch (pace) {
    case JointPace::kSlowest:
      return *std::max_element(workers.begin(), workers.end());
    case JointPace::kEachItsOwn:
      return count / std::transform_reduce(workers.begin(), workers.end(), 0.0, std::plus<>(),
                                           [](double seconds) { return 1 / seconds; });
    default:
      return std::reduce(workers.begin(), workers.end()) / count;
  }
}

void IterationRecord::AddExchange(int iteration, int bucket, const ExchangeMoments& moments) {
  if (static_cast<int>(times_.size()) <= iteration) {
    times_.resize(iteration + 1, std::vector<BucketTimes>(buckets_));
  }
  BucketTimes& times = times_[iteration][bucket];
  const int64_t sent = std::max(moments.sent, moments.ready);
  const int64_t exchange = std::max<int64_t>(moments.fresh - moments.ready, 0);
  times.exchange += InSeconds(exchange) / workers_;
  times.ready += InSeconds(moments.ready - moments.began) / workers_;
  times.sent += InSeconds(sent - moments.began) / workers_;
  times.fresh += InSeconds(moments.fresh - moments.began) / workers_;
  times.needed += InSeconds(moments.needed - moments.began) / workers_;
}

bool IterationRecord::AddEnd(int iteration, int worker, double seconds) {
  if (static_cast<int>(ends_.size()) <= iteration) {
    ends_.resize(iteration + 1, std::vector<double>(workers_));
    mean_ends_.resize(iteration + 1);
    finished_.resize(iteration + 1);
  }
  ends_[iteration][worker] = seconds;
  mean_ends_[iteration] += seconds / workers_;
  return ++finished_[iteration] == workers_;
}

double IterationRecord::Length(int iteration, int count) const {
  // One difference of two means: among plans that take as long, roundings would choose.
  if (pace_ == JointPace::kTogether) {
    return (mean_ends_[iteration] - mean_ends_[iteration - count]) / count;
  }
  std::vector<double> lengths(workers_);
  for (int w = 0; w < workers_; ++w) {
    lengths[w] = (ends_[iteration][w] - ends_[iteration - count][w]) / count;
  }
  return SecondsOfAll(pace_, lengths);
}

bool IterationRecord::IsSteady(int iteration) const {
  return iteration >= kFirstSteady && (iteration + 1 >= kMostIterations || IsAlike(iteration));
}

bool IterationRecord::IsAlike(int iteration) const {
  const double length = Length(iteration);
  return std::abs(length - Length(iteration - 1)) <= kSteady * length;
}

PredictedTimes IterationRecord::Result() const {
  size_t last = finished_.size();
  while (last > 0 && finished_[last - 1] < workers_) --last;
  const int iteration = static_cast<int>(last) - 1;
  const bool swings = iteration + 1 >= kMostIterations && !IsAlike(iteration);
  const int averaged = swings ? kAveraged : 2;
  PredictedTimes result;
  result.seconds = Length(iteration, averaged);
  result.buckets = times_[iteration - 1];
  return result;
}

}  // namespace poseidon
