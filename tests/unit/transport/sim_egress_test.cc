#include "transport/sim/sim_egress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "core/random.h"

namespace poseidon {
namespace {

struct Offered {
  int64_t time = 0;
  uint64_t connection = 0;
  int64_t bytes = 0;
};

// Runs the egress: when each of those offered, in the order of their times, has left.
std::vector<int64_t> Left(const std::vector<Offered>& offered, double bytes_per_second) {
  constexpr int64_t kNoOvertaking = int64_t{1} << 50;
  SimEgress egress(kNoOvertaking, bytes_per_second);
  std::vector<int64_t> left(offered.size(), -1);
  const auto finish = [&](int64_t until) {
    while (egress.NextLeft() <= until) {
      const int64_t now = egress.NextLeft();
      while (const auto transfer = egress.PopLeft(now)) left[*transfer] = now;
    }
  };
  for (size_t i = 0; i < offered.size(); ++i) {
    finish(offered[i].time);
    egress.Push(static_cast<uint32_t>(i), 0, offered[i].connection, offered[i].bytes,
                offered[i].time);
  }
  finish(SimEgress::kNever - 1);
  EXPECT_FALSE(egress.PopLeft(SimEgress::kNever)) << "nothing leaves any more";
  return left;
}

// The same as a fluid, without virtual time: from one event to the next every connection that has
// something sends its share.
std::vector<double> LeftAsAFluid(const std::vector<Offered>& offered, double bytes_per_second) {
  std::vector<double> left(offered.size(), -1);
  std::map<uint64_t, std::vector<std::pair<size_t, double>>> waiting;
  const double rate = bytes_per_second / 1e9;
  double now = 0;
  size_t next = 0;
  while (true) {
    double shares = 0;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& [connection, queue] : waiting) {
      if (queue.empty()) continue;
      ++shares;
      least = std::min(least, queue.front().second);
    }
    const double coming = next < offered.size() ? static_cast<double>(offered[next].time)
                                                : std::numeric_limits<double>::infinity();
    if (shares == 0 && std::isinf(coming)) return left;
    const double until = std::min(coming, shares > 0 ? now + least * shares / rate : coming);
    for (auto& [connection, queue] : waiting) {
      if (queue.empty()) continue;
      queue.front().second -= (until - now) * rate / shares;
      if (queue.front().second > 1e-6) continue;
      left[queue.front().first] = until;
      queue.erase(queue.begin());
    }
    now = until;
    if (now == coming) {
      waiting[offered[next].connection].emplace_back(next,
                                                     static_cast<double>(offered[next].bytes));
      ++next;
    }
  }
}

TEST(SimEgressTest, ConnectionsShareAsAFluidDoes) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const double rate = 1e6 * std::pow(1e5, random.Uniform());  // to 100 GB/s
    const uint64_t connections = 1 + random.Below(12);
    std::vector<Offered> offered(1 + random.Below(100));
    const double mean = 1000 * std::pow(1000, random.Uniform());
    int64_t time = 0;
    for (Offered& one : offered) {
      one.bytes = 1 + static_cast<int64_t>(2 * mean * random.Uniform());
      one.connection = random.Below(connections);
      one.time = time;
      // Sometimes at once, sometimes after all has left; in the mean the link is nearly busy.
      if (random.Chance(0.5)) {
        time += static_cast<int64_t>(4 * mean * random.Uniform() * 1e9 / rate);
      }
    }
    const std::vector<int64_t> left = Left(offered, rate);
    const std::vector<double> fluid = LeftAsAFluid(offered, rate);
    for (size_t i = 0; i < offered.size(); ++i) {
      // Whatever leaves before it is rounded up to a whole nanosecond.
      ASSERT_NEAR(static_cast<double>(left[i]), fluid[i], 1.0 + static_cast<double>(offered.size()))
          << "seed " << seed << ", one " << i << " of " << offered.size();
    }
  }
}

TEST(SimEgressTest, OneConnectionLeavesOneAfterTheOther) {
  const std::vector<int64_t> left = Left({{0, 7, 3000}, {0, 7, 1}, {100, 7, 2}}, 3e9);
  EXPECT_EQ(left, (std::vector<int64_t>{1000, 1001, 1002}));
}

}  // namespace
}  // namespace poseidon
