#include "scheduler/monitor/history.h"

#include <cmath>
#include <limits>

#include "scheduler/report/iteration_pace.h"

namespace poseidon {
namespace {

double Mean(double sum, int64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

void Merge(const History::Point& from, History::Point& into) {
  into.iterations += from.iterations;
  into.loss_sum += from.loss_sum;
  into.losses += from.losses;
  into.duration_ms_sum += from.duration_ms_sum;
  into.together_ms_sum += from.together_ms_sum;
  into.exposed_ms_sum += from.exposed_ms_sum;
  into.durations += from.durations;
  into.images += from.images;
}

History::Point PointOf(const wire::IterationRecord& iteration) {
  History::Point point;
  point.first = iteration.number();
  point.iterations = 1;
  if (!std::isnan(iteration.loss())) {
    point.loss_sum = iteration.loss();
    point.losses = 1;
  }
  if (!std::isnan(iteration.duration_ms())) {
    point.duration_ms_sum = iteration.duration_ms();
    point.together_ms_sum = TogetherMs(iteration);
    point.exposed_ms_sum = iteration.exposed_ms();
    point.durations = 1;
    point.images = iteration.images();
  }
  return point;
}

}  // namespace

double History::Point::loss() const { return Mean(loss_sum, losses); }
double History::Point::duration_ms() const { return Mean(duration_ms_sum, durations); }
double History::Point::exposed_ms() const { return Mean(exposed_ms_sum, durations); }

double History::Point::images_per_second() const {
  if (images == 0 || together_ms_sum <= 0) return std::numeric_limits<double>::quiet_NaN();
  return 1000 * static_cast<double>(images) / together_ms_sum;
}

void History::Add(const wire::IterationRecord& iteration) {
  if (!points_.empty()) {
    Point& last = points_.back();
    if (iteration.number() < last.first + last.iterations) return;
    if (last.iterations < stride_) return Merge(PointOf(iteration), last);
  }
  if (points_.size() == kMostPoints) Halve();
  points_.push_back(PointOf(iteration));
}

void History::CutFrom(int64_t number) {
  while (!points_.empty() && points_.back().first + points_.back().iterations > number) {
    points_.pop_back();
  }
}

void History::Halve() {
  for (size_t i = 0; i + 1 < points_.size(); i += 2) {
    points_[i / 2] = points_[i];
    Merge(points_[i + 1], points_[i / 2]);
  }
  points_.resize(points_.size() / 2);
  stride_ *= 2;
}

}  // namespace poseidon
