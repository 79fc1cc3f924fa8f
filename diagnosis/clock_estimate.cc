#include "diagnosis/clock_estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

namespace poseidon {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

// Quartz is off by a hundred parts in a million at worst, and what sets clocks turns them by at
// most five hundred.
constexpr double kLargestRate = 1e-3;
// Halves the range of rates at least: down to 1e-12.
constexpr int kRateSteps = 60;
// Windows of time of whose frames the quickest counts, for rates: there may be a million frames.
constexpr int kWindows = 512;

// bounds[a][b]: how far clock b is ahead of clock a, at most.
using Bounds = std::vector<std::vector<int64_t>>;

Bounds BoundsOf(int clocks, const std::vector<ClockReading>& readings,
                const std::vector<ClockEstimate>& turned) {
  Bounds bounds(clocks, std::vector<int64_t>(clocks, kNever));
  for (int clock = 0; clock < clocks; ++clock) bounds[clock][clock] = 0;
  for (const ClockReading& one : readings) {
    int64_t& bound = bounds[one.from][one.to];
    const Time delay =
        turned[one.to].ToReference(one.arrived) - turned[one.from].ToReference(one.sent);
    bound = std::min<int64_t>(bound, delay.count());
  }
  // What holds over other clocks holds, too.
  for (int middle = 0; middle < clocks; ++middle) {
    for (int a = 0; a < clocks; ++a) {
      if (bounds[a][middle] >= kNever) continue;
      for (int b = 0; b < clocks; ++b) {
        if (bounds[middle][b] >= kNever) continue;
        bounds[a][b] = std::min(bounds[a][b], bounds[a][middle] + bounds[middle][b]);
      }
    }
  }
  return bounds;
}

bool Contradict(const Bounds& bounds) {
  for (size_t clock = 0; clock < bounds.size(); ++clock) {
    if (bounds[clock][clock] < 0) return true;
  }
  return false;
}

// Of two clocks a and b: how far b is ahead of a, at a time of b, at most or at least.
struct Point {
  double time;
  double ahead;
};

struct Points {
  std::vector<Point> most;
  std::vector<Point> least;
};

// How far apart what is most and what is least ahead are, if b runs at that rate.
double Gap(const Points& points, double rate) {
  double most = std::numeric_limits<double>::infinity();
  double least = -most;
  for (const Point& one : points.most) most = std::min(most, one.ahead - rate * one.time);
  for (const Point& one : points.least) least = std::max(least, one.ahead - rate * one.time);
  return most - least;
}

// The rate at which they are farthest apart; Gap is concave.
double RateOf(const Points& points) {
  double low = -kLargestRate;
  double high = kLargestRate;
  for (int step = 0; step < kRateSteps; ++step) {
    const double third = (high - low) / 3;
    if (Gap(points, low + third) < Gap(points, high - third)) {
      low += third;
    } else {
      high -= third;
    }
  }
  return (low + high) / 2;
}

// The tightest of each window of time.
std::vector<Point> Thinned(const std::vector<Point>& points, double sign) {
  if (points.empty()) return {};
  const auto [first, last] = std::ranges::minmax_element(points, {}, &Point::time);
  const double width = (last->time - first->time) / kWindows + 1;
  const double begin = first->time;
  std::map<int, Point> windows;
  for (const Point& point : points) {
    const auto [window, is_new] =
        windows.emplace(static_cast<int>((point.time - begin) / width), point);
    if (!is_new && sign * point.ahead < sign * window->second.ahead) window->second = point;
  }
  std::vector<Point> thinned;
  for (const auto& [window, point] : windows) thinned.push_back(point);
  return thinned;
}

// Of clock b beside a, whose rate is known.
Points PointsOf(int a, int b, const std::vector<ClockReading>& readings,
                const std::vector<ClockEstimate>& clocks) {
  Points points;
  // From the times' own beginnings, as doubles have no room for all of them.
  const auto time_of_a = [&](Time time) {
    return (clocks[a].ToReference(time) - clocks[a].origin).count();
  };
  const auto time_of_b = [&](Time time) { return (time - clocks[b].origin).count(); };
  for (const ClockReading& one : readings) {
    if (one.from == a && one.to == b) {
      const auto time = static_cast<double>(time_of_b(one.arrived));
      points.most.push_back({time, time - static_cast<double>(time_of_a(one.sent))});
    } else if (one.from == b && one.to == a) {
      const auto time = static_cast<double>(time_of_b(one.sent));
      points.least.push_back({time, time - static_cast<double>(time_of_a(one.arrived))});
    }
  }
  return {Thinned(points.most, 1), Thinned(points.least, -1)};
}

// Sets the rates of all clocks that frames lead to, there and back, from the first one.
void SetRates(const std::vector<ClockReading>& readings, std::vector<ClockEstimate>& clocks) {
  std::vector<int> reached = {0};
  std::vector<bool> is_reached(clocks.size(), false);
  is_reached[0] = true;
  for (size_t i = 0; i < reached.size(); ++i) {
    for (int clock = 0; clock < static_cast<int>(clocks.size()); ++clock) {
      if (is_reached[clock]) continue;
      const Points points = PointsOf(reached[i], clock, readings, clocks);
      if (points.most.empty() || points.least.empty()) continue;
      clocks[clock].rate = RateOf(points);
      is_reached[clock] = true;
      reached.push_back(clock);
    }
  }
}

void SetOrigins(const std::vector<ClockReading>& readings, std::vector<ClockEstimate>& clocks) {
  for (ClockEstimate& clock : clocks) clock.origin = Time::max();
  for (const ClockReading& one : readings) {
    clocks[one.from].origin = std::min(clocks[one.from].origin, one.sent);
    clocks[one.to].origin = std::min(clocks[one.to].origin, one.arrived);
  }
  for (ClockEstimate& clock : clocks) {
    if (clock.origin == Time::max()) clock.origin = Time{};
  }
}

}  // namespace

Time ClockEstimate::ToReference(Time time) const {
  const double turned = rate * static_cast<double>((time - origin).count());
  return time - offset - Duration(std::llround(turned));
}

std::vector<ClockEstimate> EstimateClocks(int clocks, const std::vector<ClockReading>& readings) {
  std::vector<ClockEstimate> estimates(clocks);
  SetOrigins(readings, estimates);
  Bounds bounds = BoundsOf(clocks, readings, estimates);
  if (Contradict(bounds)) {
    SetRates(readings, estimates);
    bounds = BoundsOf(clocks, readings, estimates);
  }
  for (int clock = 0; clock < clocks; ++clock) {
    const int64_t most = bounds[0][clock];
    if (most >= kNever || bounds[clock][0] >= kNever) continue;
    const int64_t least = -bounds[clock][0];
    estimates[clock].known = true;
    if (clock == 0) continue;
    estimates[clock].offset = Duration(least + (most - least) / 2);
    estimates[clock].error = Duration((std::abs(most - least) + 1) / 2);
  }
  return estimates;
}

}  // namespace poseidon
