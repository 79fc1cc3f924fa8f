#include "client/pace/compute_disturbance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "client/pace/compute_spread.h"

namespace poseidon {
namespace {

using testing::ElementsAre;

Disturbance Spreads(double iteration, double layer) {
  Disturbance disturbance;
  disturbance.set_iteration_spread(iteration);
  disturbance.set_layer_spread(layer);
  return disturbance;
}

Disturbance Stalls(double interval, double seconds) {
  Disturbance disturbance;
  disturbance.set_stall_interval_seconds(interval);
  disturbance.set_stall_seconds(seconds);
  return disturbance;
}

// Seconds of so many iterations of these passes.
std::vector<std::vector<double>> Draw(ComputeDisturbance disturbance,
                                      const std::vector<double>& passes, int iterations,
                                      int rank = 0) {
  std::vector<std::vector<double>> drawn(iterations);
  for (int i = 0; i < iterations; ++i) {
    disturbance.Begin(rank, i);
    for (size_t p = 0; p < passes.size(); ++p) {
      drawn[i].push_back(ToSeconds(disturbance.Of(static_cast<int>(p), Seconds(passes[p]))));
    }
  }
  return drawn;
}

struct Moments {
  double mean = 0;
  double deviation = 0;
};

Moments MomentsOf(const std::vector<double>& values) {
  Moments moments;
  for (const double value : values) moments.mean += value / static_cast<double>(values.size());
  double variance = 0;
  for (const double value : values) {
    variance += (value - moments.mean) * (value - moments.mean);
  }
  moments.deviation = std::sqrt(variance / static_cast<double>(values.size()));
  return moments;
}

std::vector<double> Sums(const std::vector<std::vector<double>>& drawn) {
  std::vector<double> sums;
  for (const std::vector<double>& passes : drawn) {
    sums.push_back(0);
    for (const double pass : passes) sums.back() += pass;
  }
  return sums;
}

TEST(ComputeDisturbanceTest, NothingVariesUnlessItIsSaid) {
  ComputeDisturbance nothing{Disturbance()};
  nothing.Begin(3, 7);
  for (const int64_t nanoseconds : {0, 1, 3, 1'234'567'891}) {
    EXPECT_EQ(nothing.Of(0, Duration(nanoseconds)), Duration(nanoseconds));
    EXPECT_EQ(nothing.OfMany(0, Duration(nanoseconds)), Duration(nanoseconds));
  }
}

TEST(ComputeDisturbanceTest, APassThatTakesNoTimeStaysSo) {
  Disturbance all = Spreads(0.1, 0.1);
  all.set_layer_cost("20us");
  ComputeDisturbance disturbance(all);
  disturbance.Begin(0, 0);
  EXPECT_EQ(disturbance.Of(0, Duration()), Duration());
}

TEST(ComputeDisturbanceTest, TheSameWorkerAndIterationAndNoOthersTakeTheSame) {
  ComputeDisturbance disturbance(Spreads(0.1, 0.1));
  const auto of = [&](int rank, int64_t iteration, int pass) {
    disturbance.Begin(rank, iteration);
    return disturbance.Of(pass, Seconds(1));
  };
  const Duration first = of(1, 2, 3);
  EXPECT_NE(of(2, 2, 3), first);
  EXPECT_NE(of(1, 1, 3), first);
  EXPECT_NE(of(1, 2, 2), first);
  EXPECT_EQ(of(1, 2, 3), first);
  Disturbance other = Spreads(0.1, 0.1);
  other.set_seed(2);
  disturbance = ComputeDisturbance(other);
  EXPECT_NE(of(1, 2, 3), first);
}

// The mean of many is the planned time, and the deviations are what was asked for.
TEST(ComputeDisturbanceTest, SpreadsAroundWhatIsPlanned) {
  constexpr int kIterations = 20000;
  for (const double spread : {0.01, 0.1, 0.5}) {
    const auto iterations =
        Draw(ComputeDisturbance(Spreads(spread, 0)), {0.004, 0.001}, kIterations);
    const Moments whole = MomentsOf(Sums(iterations));
    // Four deviations of the mean of so many.
    EXPECT_NEAR(whole.mean / 0.005, 1, 4 * spread / std::sqrt(kIterations)) << spread;
    EXPECT_NEAR(whole.deviation / 0.005, spread, 0.1 * spread);
    for (const std::vector<double>& passes : iterations) {
      ASSERT_NEAR(passes[0] / passes[1], 4, 1e-4) << "one factor for all of an iteration";
    }
    const auto layers = Draw(ComputeDisturbance(Spreads(0, spread)), {0.003, 0.004}, kIterations);
    const Moments both = MomentsOf(Sums(layers));
    EXPECT_NEAR(both.mean / 0.007, 1, 4 * spread / std::sqrt(kIterations)) << spread;
    EXPECT_NEAR(both.deviation / 0.005, spread, 0.1 * spread) << "independent: 3, 4 and 5";
  }
}

// Stalls take from the mean what they add to it.
TEST(ComputeDisturbanceTest, StallsComeAsOftenAndLastAsLongAsIsSaid) {
  constexpr int kIterations = 50000;
  for (const double pass : {0.002, 0.3, 30.0}) {
    const auto drawn = Draw(ComputeDisturbance(Stalls(0.2, 0.05)), {pass}, kIterations);
    const Moments moments = MomentsOf(Sums(drawn));
    // Per second planned 4 stalls of mean 0.05 s and second moment 2 x 0.05^2.
    const double deviation = std::sqrt(4 * pass * 2 * 0.05 * 0.05);
    EXPECT_NEAR(moments.mean, pass, 4 * deviation / std::sqrt(kIterations));
    EXPECT_NEAR(moments.deviation / deviation, 1, 0.1);
    const auto calm = std::ranges::count_if(
        Sums(drawn), [&](double seconds) { return seconds < 0.8 * pass + 1e-8; });
    EXPECT_NEAR(static_cast<double>(calm) / kIterations, std::exp(-4 * pass), 0.01);
  }
}

TEST(ComputeDisturbanceTest, ALayersCostComesOnTop) {
  Disturbance disturbance;
  disturbance.set_layer_cost("20us");
  EXPECT_THAT(Draw(ComputeDisturbance(disturbance), {0.001, 0.002}, 1).front(),
              ElementsAre(0.00102, 0.00202));
}

// As slow as the slowest of so many workers of one device.
TEST(ComputeDisturbanceTest, AWorkerIsAsSlowAsItsSlowestDevice) {
  constexpr int kIterations = 20000;
  std::vector<double> slowest(kIterations);
  for (int rank = 0; rank < 4; ++rank) {
    const auto one =
        Sums(Draw(ComputeDisturbance(Spreads(0.1, 0)), {0.01}, kIterations, 100 + rank));
    for (int i = 0; i < kIterations; ++i) slowest[i] = std::max(slowest[i], one[i]);
  }
  const Moments four =
      MomentsOf(Sums(Draw(ComputeDisturbance(Spreads(0.1, 0), 4), {0.01}, kIterations)));
  const Moments expected = MomentsOf(slowest);
  EXPECT_NEAR(four.mean / expected.mean, 1, 0.003);
  EXPECT_NEAR(four.deviation / expected.deviation, 1, 0.1);
}

TEST(ComputeDisturbanceTest, LocalStepsEvenOut) {
  const Moments sixteen =
      MomentsOf(Sums(Draw(ComputeDisturbance(Spreads(0.2, 0), 1, 16), {0.01}, 20000)));
  EXPECT_NEAR(sixteen.deviation / 0.01, 0.05, 0.005);
}

TEST(ComputeDisturbanceTest, IsDescribed) {
  EXPECT_EQ(DisturbanceText({}), "none");
  Disturbance all = Spreads(0.021, 0.0349);
  all.set_stall_interval_seconds(2.51);
  all.set_stall_seconds(0.004);
  all.set_layer_cost("20us");
  EXPECT_EQ(DisturbanceText(all),
            "iterations spread by 2.1%, layers by 3.5%, a stall of 4 ms every 2.5 s, 20us beside "
            "each layer's pass");
}

// What is measured of made-up times is what they were made with, whatever that is.
TEST(ComputeSpreadTest, FindsWhatTimesWereDrawnWith) {
  Random random(5);
  for (int trial = 0; trial < 20; ++trial) {
    Disturbance truth = Spreads(0.005 + 0.05 * random.Uniform(), 0.005 + 0.1 * random.Uniform());
    truth.set_seed(trial);
    // From nets of milliseconds to those of seconds. Stalls are long enough to stand out.
    const double scale = 0.02 * std::pow(50, random.Uniform());
    truth.set_stall_seconds(scale * (2 + 2 * random.Uniform()));
    truth.set_stall_interval_seconds(scale * (10 + 10 * random.Uniform()));
    std::vector<double> passes(4 + random.Below(30));
    for (double& pass : passes) pass = scale * 0.02 * std::pow(10, random.Uniform());
    constexpr int kIterations = 3000;
    const auto found = DisturbanceOf(Draw(ComputeDisturbance(truth), passes, kIterations));
    ASSERT_TRUE(found);
    SCOPED_TRACE(DisturbanceText(truth) + "; found: " + DisturbanceText(*found));
    // An iteration's own spread can't be told better than beside what its passes' add up to: of
    // squares four deviations, which are sqrt(3 / n) of them both (von Neumann and others), and a
    // tenth for what is taken for a stall and is none.
    double squares = 0;
    double sum = 0;
    for (const double pass : passes) {
      squares += pass * pass;
      sum += pass;
    }
    const double of_layers = truth.layer_spread() * std::sqrt(squares) / sum;
    const double square = truth.iteration_spread() * truth.iteration_spread();
    EXPECT_NEAR(found->iteration_spread() * found->iteration_spread(), square,
                (4 * std::sqrt(3.0 / kIterations) + 0.1) * (square + of_layers * of_layers));
    EXPECT_NEAR(found->layer_spread(), truth.layer_spread(),
                0.1 * truth.layer_spread() + 0.03 * truth.iteration_spread());
    const double stalls = kIterations * sum / truth.stall_interval_seconds();
    // Of the deviation of their number, and of the sum of their lengths, four.
    EXPECT_NEAR(found->stall_interval_seconds() / truth.stall_interval_seconds(), 1,
                4 / std::sqrt(stalls) + 0.1);
    EXPECT_NEAR(found->stall_seconds() / truth.stall_seconds(), 1, 4 / std::sqrt(stalls) + 0.1);
  }
}

TEST(ComputeSpreadTest, TimesThatAreAlwaysTheSameDoNotSpread) {
  const auto found = DisturbanceOf(std::vector<std::vector<double>>(10, {0.001, 0.002, 0.0}));
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->iteration_spread(), 0, 1e-9);
  EXPECT_NEAR(found->layer_spread(), 0, 1e-9);
  EXPECT_EQ(found->stall_interval_seconds(), 0);
}

// A machine that others keep busy takes any times. A profile with them is a job config's (proto/
// job_check.cc).
TEST(ComputeSpreadTest, WhateverIsMeasuredCanBePlannedWith) {
  bool spreads_widely = false;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::lognormal_distribution<double> each(0, 0.01 * static_cast<double>(random() % 300));
    std::lognormal_distribution<double> all(0, 0.01 * static_cast<double>(random() % 300));
    const size_t passes = 1 + random() % 8;
    const double usual = std::pow(10, -6 + static_cast<double>(random() % 7));  // seconds
    std::vector<std::vector<double>> iterations(10 + random() % 100);
    for (std::vector<double>& iteration : iterations) {
      const double factor = all(random);
      for (size_t p = 0; p < passes; ++p) iteration.push_back(usual * factor * each(random));
    }
    const auto found = DisturbanceOf(iterations);
    ASSERT_TRUE(found);
    for (const double spread : {found->iteration_spread(), found->layer_spread()}) {
      EXPECT_GE(spread, 0);
      EXPECT_LE(spread, 1);
      spreads_widely |= spread == 1;
    }
    if (!found->has_stall_seconds()) continue;
    EXPECT_GE(found->stall_interval_seconds(), 1e-3);
    EXPECT_LE(found->stall_interval_seconds(), 1e6);
    EXPECT_LE(found->stall_seconds(), found->stall_interval_seconds());
  }
  EXPECT_TRUE(spreads_widely);
}

TEST(ComputeSpreadTest, NothingIsKnownOfFewIterationsOrOfNone) {
  EXPECT_FALSE(DisturbanceOf({}));
  EXPECT_FALSE(DisturbanceOf(std::vector<std::vector<double>>(9, {0.001})));
  EXPECT_FALSE(DisturbanceOf(std::vector<std::vector<double>>(20, std::vector<double>{0.0})));
  EXPECT_FALSE(DisturbanceOf(std::vector<std::vector<double>>(20)));
}

// What a long training reports: a fair sample, without the first iterations.
TEST(ComputeSpreadTest, ReportsALongTrainingsPace) {
  ComputeSpread spread;
  EXPECT_FALSE(spread.Pace());
  for (int i = 0; i < ComputeSpread::kSkipped; ++i) spread.Add(10, 32);
  ComputeDisturbance disturbance(Spreads(0.03, 0));
  constexpr int kIterations = 20000;
  for (int i = 0; i < kIterations; ++i) {
    disturbance.Begin(0, i);
    // The batch doubles half-way; every 50th iteration is stalled for 0.2 s.
    const int64_t images = i < kIterations / 2 ? 32 : 64;
    const bool stalled = i % 50 == 0;
    const Duration planned = Seconds(0.001 * static_cast<double>(images));
    spread.Add(ToSeconds(disturbance.Of(0, planned)) + (stalled ? 0.2 : 0), images);
    spread.Add(0, 32);  // an iteration that says nothing
    spread.Add(1, 0);
  }
  const auto pace = spread.Pace();
  ASSERT_TRUE(pace);
  EXPECT_EQ(pace->iterations(), static_cast<int64_t>(ComputeSpread::kSample));
  EXPECT_NEAR(pace->iteration_ms(), 64, 1);
  EXPECT_NEAR(pace->spread(), 0.03, 0.004);
  // One in 50 of a sample of 1,000: 20, and four deviations of that.
  EXPECT_NEAR(static_cast<double>(pace->stalls()), 20, 18);
}

}  // namespace
}  // namespace poseidon
