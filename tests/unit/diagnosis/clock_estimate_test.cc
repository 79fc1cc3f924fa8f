#include "diagnosis/clock_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>

namespace poseidon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Machines whose clocks are ahead of the true time by their offsets, and run faster by their rates.
struct Machines {
  std::vector<Duration> offsets;
  std::vector<double> rates = std::vector<double>(offsets.size());

  Time Shows(int clock, Time true_time) const {
    const double turned = rates[clock] * static_cast<double>(true_time.count());
    return true_time + offsets[clock] + Duration(std::llround(turned));
  }
};

// A frame each way between two machines every millisecond, with delays of 50 us at least and mostly
// far more, longer in one direction.
void Exchange(const Machines& machines, int a, int b, int frames, std::mt19937& random,
              std::vector<ClockReading>& readings) {
  std::exponential_distribution<double> queueing(1.0 / 300e3);
  for (int i = 0; i < frames; ++i) {
    const Time sent = milliseconds(i);
    const auto delay = [&](double factor) {
      return microseconds(50) + Duration(std::llround(factor * queueing(random)));
    };
    readings.push_back({a, b, machines.Shows(a, sent), machines.Shows(b, sent + delay(1))});
    readings.push_back({b, a, machines.Shows(b, sent), machines.Shows(a, sent + delay(3))});
  }
}

// By how much an estimate is off at a time.
Duration Mistake(const Machines& machines, const ClockEstimate& estimate, int clock, Time when) {
  return estimate.ToReference(machines.Shows(clock, when)) - machines.Shows(0, when);
}

TEST(ClockEstimate, FindsOffsetsWithinTheErrorThatItStates) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int64_t> ahead(-5'000'000'000'000, 5'000'000'000'000);
    const Machines machines{{{}, Duration(ahead(random)), Duration(ahead(random))}};
    std::vector<ClockReading> readings;
    Exchange(machines, 0, 1, 200, random, readings);
    // The third is known over the second only.
    Exchange(machines, 1, 2, 200, random, readings);
    const auto clocks = EstimateClocks(3, readings);
    for (int clock = 0; clock < 3; ++clock) {
      ASSERT_TRUE(clocks[clock].known);
      EXPECT_EQ(clocks[clock].rate, 0);
      EXPECT_LE(std::abs(Mistake(machines, clocks[clock], clock, milliseconds(77)).count()),
                clocks[clock].error.count())
          << "clock " << clock << ", seed " << seed;
    }
    // Not much more than the quickest frames take there and back.
    EXPECT_LT(clocks[1].error, microseconds(70)) << "seed " << seed;
    EXPECT_LT(clocks[2].error, microseconds(140)) << "seed " << seed;
  }
}

TEST(ClockEstimate, AnotherWayMayBeTighter) {
  // The frames between 0 and 2 are slow, those over 1 are not.
  const std::vector<ClockReading> readings = {
      {0, 2, Time(0), Time(1000)}, {2, 0, Time(0), Time(1000)}, {0, 1, Time(0), Time(10)},
      {1, 0, Time(0), Time(10)},   {1, 2, Time(0), Time(20)},   {2, 1, Time(0), Time(20)}};
  const auto clocks = EstimateClocks(3, readings);
  EXPECT_EQ(clocks[2].offset, Duration(0));
  EXPECT_EQ(clocks[2].error, Duration(30));
}

TEST(ClockEstimate, FindsAClockThatRunsFaster) {
  for (uint32_t seed = 0; seed < 10; ++seed) {
    std::mt19937 random(seed);
    // In a minute 3 ms, where the quickest frames take 0.1 ms there and back.
    const Machines machines{{{}, milliseconds(1234), milliseconds(-77)}, {0, 50e-6, -20e-6}};
    std::vector<ClockReading> readings;
    Exchange(machines, 0, 1, 60000, random, readings);
    Exchange(machines, 0, 2, 60000, random, readings);
    const auto clocks = EstimateClocks(3, readings);
    for (int clock = 1; clock < 3; ++clock) {
      ASSERT_TRUE(clocks[clock].known);
      for (const Time when : {milliseconds(0), milliseconds(30000), milliseconds(60000)}) {
        // Rates are the same only up to what the quickest frames tell.
        EXPECT_LE(std::abs(Mistake(machines, clocks[clock], clock, when).count()),
                  2 * clocks[clock].error.count())
            << "clock " << clock << " at " << when.count() << ", seed " << seed;
      }
      EXPECT_LT(clocks[clock].error, microseconds(100));
    }
  }
}

TEST(ClockEstimate, DoesNotGuessWithoutFramesThereAndBack) {
  const std::vector<ClockReading> readings = {{0, 1, Time(0), Time(10)}};
  const auto clocks = EstimateClocks(2, readings);
  EXPECT_TRUE(clocks[0].known);
  EXPECT_FALSE(clocks[1].known);
  EXPECT_EQ(clocks[1].ToReference(Time(5)), Time(5));
}

}  // namespace
}  // namespace poseidon
