#include "planner/cost/fragments.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "planner/cost/local_steps_model.h"

namespace poseidon {
namespace {

ModelSpec ModelOf(const std::vector<int64_t>& floats) {
  ModelSpec model;
  for (const int64_t count : floats) model.add_layers()->add_blobs()->add_shape(count);
  return model;
}

TEST(Fragments, GetEqualLayersInTurn) {
  EXPECT_THAT(FragmentOfLayer(ModelOf({5, 5, 5, 5, 5}), 2), testing::ElementsAre(0, 1, 0, 1, 0));
  EXPECT_THAT(FragmentOfLayer(ModelOf({5, 5, 5}), 1), testing::ElementsAre(0, 0, 0));
  EXPECT_THAT(FragmentOfLayer(ModelOf({1, 9, 2, 3}), 2), testing::ElementsAre(1, 0, 1, 1));
}

// No fragment has more than its share and the largest layer, which the rule guarantees.
TEST(Fragments, AreOfAboutTheSameSize) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> floats(1 + random() % 30);
    int64_t sum = 0;
    for (int64_t& count : floats) sum += count = static_cast<int64_t>(1 + random() % 1000);
    const int fragments = static_cast<int>(1 + random() % 8);
    const std::vector<int> fragment_of = FragmentOfLayer(ModelOf(floats), fragments);
    ASSERT_EQ(fragment_of.size(), floats.size());
    std::vector<int64_t> loads(fragments);
    for (size_t layer = 0; layer < floats.size(); ++layer) {
      loads.at(fragment_of[layer]) += floats[layer];
    }
    const int64_t largest = *std::max_element(floats.begin(), floats.end());
    EXPECT_LE(*std::max_element(loads.begin(), loads.end()), sum / fragments + largest) << trial;
  }
}

TEST(Fragments, AreSentAfterStepsOfTheirOwn) {
  for (int steps = 1; steps < 40; ++steps) {
    for (int fragments = 1; fragments <= steps; ++fragments) {
      Communication communication;
      communication.set_local_steps(steps);
      communication.set_fragments(fragments);
      int before = 0;
      for (int fragment = 0; fragment < fragments; ++fragment) {
        const int step = StepOfFragment(communication, fragment);
        // Enough apart for the longest overlap that is allowed.
        EXPECT_GE(step - before, steps / fragments);
        before = step;
      }
      EXPECT_EQ(before, steps);
    }
  }
}

// As many fragments as a job may have, of which only those with layers are exchanged.
TEST(Fragments, WithoutLayersTakeNoTime) {
  constexpr int kSteps = 1000000;
  const ModelSpec model = ModelOf({5, 5, 5});
  Plan plan;
  plan.set_local_steps(kSteps);
  plan.set_fragments(kSteps);
  for (int layer = 0; layer < model.layers_size(); ++layer) {
    BucketPlan& bucket = *plan.add_buckets();
    bucket.set_first_layer(layer);
    bucket.set_layer_count(1);
  }
  int exchanges = 0;
  const std::vector<LayerTime> layers(3, {.forward = 1, .backward = 2});
  const PredictedTimes times = PredictLocalSteps(
      plan, model, layers, [&](const Plan&, const ModelSpec&, const std::vector<LayerTime>&) {
        ++exchanges;
        return PredictedTimes{.seconds = 7, .buckets = {{}}};
      });
  EXPECT_EQ(exchanges, 3);
  EXPECT_DOUBLE_EQ(times.seconds, 9.0 * kSteps + 3 * 7);
}

}  // namespace
}  // namespace poseidon
