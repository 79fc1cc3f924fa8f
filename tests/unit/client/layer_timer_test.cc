#include "client/pace/layer_timer.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

TEST(LayerTimerTest, MeansOfTenIterationsByTheLayerAtOrBelowAStep) {
  // Data, a layer with parameters, two without, another with, a loss.
  LayerTimer timer({std::nullopt, 0, std::nullopt, std::nullopt, 1, std::nullopt});
  for (int iteration = 0; iteration < 30; ++iteration) {
    for (int step = 0; step < 6; ++step) {
      // The first three are slow; after them step s takes s + t ms in iteration t.
      const int64_t milliseconds = iteration < 3 ? 1000 : step + iteration;
      timer.AddForward(step, std::chrono::milliseconds(milliseconds));
      timer.AddBackward(step, std::chrono::milliseconds(2 * milliseconds));
    }
    const std::optional<wire::LayerTimes> times = timer.EndIteration();
    ASSERT_EQ(times.has_value(), iteration == 12);
    if (!times) continue;
    // The mean of t is 7.5: steps 0 to 3, then 4 and 5.
    ASSERT_EQ(times->forward_ms_size(), 2);
    ASSERT_EQ(times->backward_ms_size(), 2);
    EXPECT_NEAR(times->forward_ms(0), 6 + 4 * 7.5, 1e-9);
    EXPECT_NEAR(times->forward_ms(1), 9 + 2 * 7.5, 1e-9);
    EXPECT_NEAR(times->backward_ms(0), 2 * (6 + 4 * 7.5), 1e-9);
    EXPECT_NEAR(times->backward_ms(1), 2 * (9 + 2 * 7.5), 1e-9);
  }
}

}  // namespace
}  // namespace poseidon
