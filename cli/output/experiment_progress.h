// What `poseidon experiment` prints while it works: a line a point, with the time that is left.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/time.h"
#include "experiments/experiment_point.h"

namespace poseidon {

// Not thread-safe.
class ExperimentProgress {
 public:
  // `points`: those that are still to do.
  ExperimentProgress(std::ostream& out, const std::vector<const ExperimentPoint*>& points,
                     Time start);

  // `took`: of this point alone; others may have gone on at the same time.
  void Done(const ExperimentPoint& point, const PointResult& result, Duration took, Time now);
  void Failed(const ExperimentPoint& point, const std::string& reason);

  size_t failures() const { return failures_; }

 private:
  void Begin(const ExperimentPoint& point);

  std::ostream& out_;
  size_t count_;
  Time start_;
  size_t finished_ = 0;
  size_t failures_ = 0;
  double work_ = 0;  // of all points, in units of WorkOf
  double done_ = 0;
};

// "1 min 20 s", for people.
std::string RoughTime(Duration duration);

}  // namespace poseidon
