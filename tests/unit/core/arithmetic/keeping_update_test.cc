// An update that leaves what was there before has the bits of one that does not.
#include "core/arithmetic/keeping_update.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace poseidon {
namespace {

class KeepingUpdateTest : public testing::TestWithParam<std::string> {
 protected:
  UpdateRule DrawRule() {
    UpdateRule rule;
    rule.type = GetParam();
    rule.base_lr = 0.1F;
    rule.momentum = rule.type == "AdaGrad" || rule.type == "RMSProp" ? 0.0F : 0.9F;
    rule.weight_decay = random_() % 2 == 0 ? 0.0F : 0.01F;
    rule.regularization =
        random_() % 2 == 0 ? UpdateRule::Regularization::kL1 : UpdateRule::Regularization::kL2;
    rule.deferred = random_() % 3 == 0;
    return rule;
  }

  std::vector<float> Draw(size_t count) {
    std::vector<float> floats(count);
    // Above 0, as squares in a state are.
    for (float& value : floats) value = 0.001F + static_cast<float>(random_() % 1000) / 1000.0F;
    return floats;
  }

  std::mt19937_64 random_;
};

TEST_P(KeepingUpdateTest, HasTheBitsOfUpdateAndLeavesWhatWasBefore) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_.seed(seed);
    const UpdateRule rule = DrawRule();
    const size_t count = 1 + random_() % 100;
    const size_t state = count * static_cast<size_t>(OptimizerStatePerParameter(rule));
    const UpdateStep step{rule, static_cast<int64_t>(random_() % 5), {2, 0.5F}, 0.25F};
    const std::vector<float> first = Draw(count);
    const std::vector<float> first_state = Draw(state);
    std::vector<float> gradient = Draw(count);
    std::vector<float> expected = first;
    std::vector<float> expected_state = first_state;
    Update(step, gradient, expected, expected_state);

    std::vector<float> parameters = first;
    std::vector<float> before(count);
    const std::vector<float> state_before = first_state;
    std::vector<float> state_after(state);
    const bool in_place = seed % 2 == 0;
    const std::vector<float> given = gradient;
    UpdateKeeping(step, {.gradient_sum = gradient,
                         .parameters = parameters,
                         .before = in_place ? gradient : before,
                         .state_before = state_before,
                         .state = state_after});
    EXPECT_EQ(parameters, expected);
    EXPECT_EQ(state_after, expected_state);
    EXPECT_EQ(in_place ? gradient : before, first);
    EXPECT_EQ(state_before, first_state);
    EXPECT_TRUE(in_place || gradient == given);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, KeepingUpdateTest,
                         testing::Values("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta",
                                         "Adam"));

}  // namespace
}  // namespace poseidon
