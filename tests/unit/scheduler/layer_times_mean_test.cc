#include "scheduler/layer_times_mean.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

using testing::ElementsAre;

wire::LayerTimes TimesOfLayer(double forward_ms) {
  wire::LayerTimes times;
  times.add_forward_ms(forward_ms);
  times.add_backward_ms(2 * forward_ms);
  return times;
}

TEST(LayerTimesMeanTest, IsThereWhenTheLastWorkerHasReported) {
  LayerTimesMean times;
  EXPECT_FALSE(times.Add(0, TimesOfLayer(1), 1, {0, 1}));
  EXPECT_FALSE(times.Add(0, TimesOfLayer(9), 1, {0, 1})) << "it says so again";
  EXPECT_FALSE(times.Add(1, TimesOfLayer(-1), 1, {0, 1})) << "is no time";
  const auto mean = times.Add(1, TimesOfLayer(3), 1, {0, 1});
  ASSERT_TRUE(mean);
  EXPECT_THAT(mean->forward_ms(), ElementsAre(2));
  EXPECT_THAT(mean->backward_ms(), ElementsAre(4));
}

TEST(LayerTimesMeanTest, IsNotWaitedForWithFewerWorkers) {
  LayerTimesMean times;
  EXPECT_FALSE(times.Remain({0, 1, 2})) << "nobody has reported";
  times.Add(0, TimesOfLayer(1), 1, {0, 1, 2});
  times.Add(2, TimesOfLayer(3), 1, {0, 1, 2});
  EXPECT_FALSE(times.Remain({0, 1, 2}));
  const auto mean = times.Remain({0, 2});
  ASSERT_TRUE(mean);
  EXPECT_THAT(mean->forward_ms(), ElementsAre(2));
  EXPECT_FALSE(times.Remain({0, 2})) << "it was told";
  EXPECT_FALSE(times.Remain({0})) << "it was told";
}

// As many have reported as are left, but others.
TEST(LayerTimesMeanTest, IsNotOfWorkersThatAreLost) {
  LayerTimesMean times;
  times.Add(0, TimesOfLayer(1), 1, {0, 1, 2, 3});
  times.Add(1, TimesOfLayer(7), 1, {0, 1, 2, 3});
  EXPECT_FALSE(times.Remain({0, 3}));
  const auto mean = times.Add(3, TimesOfLayer(3), 1, {0, 3});
  ASSERT_TRUE(mean);
  EXPECT_THAT(mean->forward_ms(), ElementsAre(2));
}

// Another process has the rank, on a machine that may be slower.
TEST(LayerTimesMeanTest, IsOfWhoCameForALostWorkersRank) {
  LayerTimesMean times;
  times.Add(1, TimesOfLayer(7), 1, {0, 1});
  times.Forget(1);
  EXPECT_FALSE(times.Add(0, TimesOfLayer(1), 1, {0, 1}));
  const auto mean = times.Add(1, TimesOfLayer(3), 1, {0, 1});
  ASSERT_TRUE(mean);
  EXPECT_THAT(mean->forward_ms(), ElementsAre(2));
}

TEST(LayerTimesMeanTest, IsToldOnceAlsoWhereWorkersCome) {
  LayerTimesMean times;
  times.Add(0, TimesOfLayer(1), 1, {0, 1});
  ASSERT_TRUE(times.Add(1, TimesOfLayer(3), 1, {0, 1}));
  EXPECT_FALSE(times.Add(2, TimesOfLayer(3), 1, {0, 1, 2}));
}

}  // namespace
}  // namespace poseidon
