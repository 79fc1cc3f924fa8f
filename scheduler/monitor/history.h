// History: how loss and throughput went over a whole training, in bounded memory: where there are
// more iterations than points, a point is the mean of several.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/journal.pb.h"

namespace poseidon {

// A value; not thread-safe.
//
//   History history;
//   history.Add(record);
//   for (const History::Point& point : history.points()) Draw(point.first, point.loss());
class History {
 public:
  static constexpr size_t kMostPoints = 512;

  // Consecutive iterations. Sums of the iterations that tell a value.
  struct Point {
    int64_t first = 0;
    int64_t iterations = 0;
    double loss_sum = 0;
    int64_t losses = 0;
    double duration_ms_sum = 0;
    double together_ms_sum = 0;  // as TogetherMs has it
    double exposed_ms_sum = 0;
    int64_t durations = 0;
    int64_t images = 0;

    // Means; NaN where no iteration tells.
    double loss() const;
    double duration_ms() const;
    double exposed_ms() const;
    double images_per_second() const;
  };

  // Iterations come in ascending order; one that comes late is left out.
  void Add(const wire::IterationRecord& iteration);
  // Iterations from `number` on are to come again. Those just before it that share a point with it
  // are forgotten, too.
  void CutFrom(int64_t number);
  // Ascending, at most kMostPoints.
  const std::vector<Point>& points() const { return points_; }
  // How many iterations a full point has.
  int64_t stride() const { return stride_; }

 private:
  void Halve();

  std::vector<Point> points_;
  int64_t stride_ = 1;
};

}  // namespace poseidon
