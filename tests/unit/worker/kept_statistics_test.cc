#include "worker/engine/kept_statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <random>
#include <thread>

namespace poseidon {
namespace {

using testing::ElementsAre;

// On the host, and on a device, whose passes are in a stream and may be behind.
class KeptStatisticsTest : public testing::TestWithParam<bool> {
 protected:
  // What an iteration does to them.
  void Train(int64_t iteration) {
    kept_.Keep(iteration);
    const auto pass = [this, iteration] {
      for (float& value : mean_) value += static_cast<float>(iteration + 1);
      variance_[0] *= 2;
    };
    if (device_ == nullptr) return pass();
    device_->Run([pass] {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      pass();
    });
  }
  std::vector<float> Now() const {
    if (device_ != nullptr) device_->Wait();
    return {mean_[0], mean_[1], variance_[0]};
  }

  std::vector<float> mean_ = {0, 10};
  std::vector<float> variance_ = {1};
  std::unique_ptr<ComputeDevice> device_ =
      GetParam() ? std::make_unique<HostComputeDevice>(HostDevice::Options{.name = "device"},
                                                       /*like_a_gpu=*/true)
                 : nullptr;
  KeptStatistics kept_{{mean_, variance_}, device_.get()};
};

INSTANTIATE_TEST_SUITE_P(HostOrDevice, KeptStatisticsTest, testing::Bool());

TEST_P(KeptStatisticsTest, AreAllLayersInOrder) {
  EXPECT_EQ(kept_.floats(), 3u);
  EXPECT_THAT(kept_.Copy(), ElementsAre(0, 10, 1));
  kept_.Set(std::vector<float>{1, 2, 3});
  EXPECT_THAT(mean_, ElementsAre(1, 2));
  EXPECT_THAT(variance_, ElementsAre(3));
}

// A worker is in iteration t or t + 1, or has done that, when all go back to t.
TEST_P(KeptStatisticsTest, GoBackToEitherOfTheLastTwo) {
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

// All go back to the iteration before the one that another worker still lacks values of.
TEST_P(KeptStatisticsTest, GoBackFromTheBeginOfTheNextIterationButOne) {
  for (int64_t iteration = 0; iteration < 3; ++iteration) Train(iteration);
  const std::vector<float> before_3 = Now();
  for (const int64_t iteration : {3, 4}) Train(iteration);
  kept_.Keep(5);
  kept_.GoBack(3);
  EXPECT_EQ(Now(), before_3);
}

TEST_P(KeptStatisticsTest, WhatHasNotBegunIsAsItIs) {
  Train(0);
  const std::vector<float> before_1 = Now();
  kept_.GoBack(1);
  EXPECT_EQ(Now(), before_1);
  kept_.GoBack(1);
  EXPECT_EQ(Now(), before_1);
}

TEST_P(KeptStatisticsTest, AnIterationOfSeveralPassesIsKeptAtItsBegin) {
  const std::vector<float> before = Now();
  Train(0);
  Train(0);
  kept_.GoBack(0);
  EXPECT_EQ(Now(), before);
}

TEST_P(KeptStatisticsTest, AnyNumberOfLosses) {
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
  KeptStatistics none({}, nullptr);
  none.Keep(0);
  none.GoBack(0);
  EXPECT_EQ(none.floats(), 0u);
  EXPECT_TRUE(none.Copy().empty());
}

}  // namespace
}  // namespace poseidon
