#include "worker/engine/kept_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace poseidon {
namespace {

using testing::ElementsAre;

class KeptStatisticsTest : public testing::Test {
 protected:
  // What an iteration does to them.
  void Train(int64_t iteration) {
    kept_.Keep(iteration);
    for (float& value : mean_) value += static_cast<float>(iteration + 1);
    variance_[0] *= 2;
  }
  std::vector<float> Now() const { return {mean_[0], mean_[1], variance_[0]}; }

  std::vector<float> mean_ = {0, 10};
  std::vector<float> variance_ = {1};
  KeptStatistics kept_{{mean_, variance_}};
};

TEST_F(KeptStatisticsTest, AreAllLayersInOrder) {
  EXPECT_EQ(kept_.floats(), 3u);
  EXPECT_THAT(kept_.Copy(), ElementsAre(0, 10, 1));
  kept_.Set(std::vector<float>{1, 2, 3});
  EXPECT_THAT(mean_, ElementsAre(1, 2));
  EXPECT_THAT(variance_, ElementsAre(3));
}

// A worker is in iteration t or t + 1, or has done that, when all go back to t.
TEST_F(KeptStatisticsTest, GoBackToEitherOfTheLastTwo) {
  for (int64_t iteration = 0; iteration < 3; ++iteration) Train(iteration);
  const std::vector<float> before_3 = Now();
  Train(3);
  const std::vector<float> before_4 = Now();
  Train(4);
  kept_.GoBack(4);
  EXPECT_EQ(Now(), before_4);
  Train(4);
  kept_.GoBack(3);
  EXPECT_EQ(Now(), before_3);
  // And on, as if nothing had been.
  Train(3);
  EXPECT_EQ(Now(), before_4);
}

TEST_F(KeptStatisticsTest, WhatHasNotBegunIsAsItIs) {
  Train(0);
  const std::vector<float> before_1 = Now();
  kept_.GoBack(1);
  EXPECT_EQ(Now(), before_1);
  kept_.GoBack(1);
  EXPECT_EQ(Now(), before_1);
}

TEST_F(KeptStatisticsTest, AnIterationOfSeveralPassesIsKeptAtItsBegin) {
  const std::vector<float> before = Now();
  Train(0);
  Train(0);
  kept_.GoBack(0);
  EXPECT_EQ(Now(), before);
}

TEST_F(KeptStatisticsTest, AnyNumberOfLosses) {
  std::mt19937_64 random(7);
  std::vector<std::vector<float>> before = {Now()};  // by iteration
  int64_t iteration = 0;
  while (iteration < 200) {
    Train(iteration++);
    if (static_cast<int64_t>(before.size()) == iteration) before.push_back(Now());
    ASSERT_EQ(Now(), before[static_cast<size_t>(iteration)]);
    if (random() % 3 != 0) continue;
    // In the middle of the next one, or between two.
    if (random() % 2 == 0) Train(iteration);
    iteration -= static_cast<int64_t>(random() % 2);
    kept_.GoBack(iteration);
    ASSERT_EQ(Now(), before[static_cast<size_t>(iteration)]);
  }
}

TEST(KeptStatistics, OfANetWithoutAny) {
  KeptStatistics none({});
  none.Keep(0);
  none.GoBack(0);
  EXPECT_EQ(none.floats(), 0u);
  EXPECT_TRUE(none.Copy().empty());
}

}  // namespace
}  // namespace poseidon
