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

NodeId Reporter(int rank) { return {Role::kWorker, rank}; }

TEST(LayerTimesMeanTest, IsThereWhenTheLastWorkerHasReported) {
  LayerTimesMean times;
  EXPECT_FALSE(times.Add(Reporter(0), TimesOfLayer(1), 1, 2));
  EXPECT_FALSE(times.Add(Reporter(0), TimesOfLayer(9), 1, 2)) << "it says so again";
  EXPECT_FALSE(times.Add(Reporter(1), TimesOfLayer(-1), 1, 2)) << "is no time";
  const auto mean = times.Add(Reporter(1), TimesOfLayer(3), 1, 2);
  ASSERT_TRUE(mean);
  EXPECT_THAT(mean->forward_ms(), ElementsAre(2));
  EXPECT_THAT(mean->backward_ms(), ElementsAre(4));
}

TEST(LayerTimesMeanTest, IsNotWaitedForWithFewerWorkers) {
  LayerTimesMean times;
  EXPECT_FALSE(times.Remain(3)) << "nobody has reported";
  times.Add(Reporter(0), TimesOfLayer(1), 1, 3);
  times.Add(Reporter(2), TimesOfLayer(3), 1, 3);
  EXPECT_FALSE(times.Remain(3));
  const auto mean = times.Remain(2);
  ASSERT_TRUE(mean);
  EXPECT_THAT(mean->forward_ms(), ElementsAre(2));
  EXPECT_FALSE(times.Remain(2)) << "it was told";
  EXPECT_FALSE(times.Remain(1)) << "it was told";
}

}  // namespace
}  // namespace poseidon
