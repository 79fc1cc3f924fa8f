// Warm-up, momentum correction and deferred updates of core/arithmetic/update_rule.h.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "core/error.h"

namespace poseidon {
namespace {

std::vector<float> NormalFloats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(WarmupTest, GoesFromItsRateToThePolicys) {
  UpdateRule rule;
  rule.base_lr = 0.8F;
  rule.warmup_iterations = 4;
  rule.warmup_base_lr = 0.4F;
  const float expected[] = {0.4F, 0.5F, 0.6F, 0.7F, 0.8F, 0.8F};
  for (int i = 0; i < 6; ++i) EXPECT_FLOAT_EQ(LearningRate(rule, i), expected[i]) << i;
  rule.lr_policy = "step";
  rule.gamma = 0.5F;
  rule.stepsize = 2;
  // At iteration 3 the policy says 0.4, three quarters of the way from 0.4 to it.
  EXPECT_FLOAT_EQ(LearningRate(rule, 3), 0.4F);
  EXPECT_FLOAT_EQ(LearningRate(rule, 4), 0.2F);
}

// Goyal et al., section 3: with the correction, Caffe's momentum of steps is the momentum of
// gradients times the present rate: u = m u + g, w = w - rate u.
TEST(MomentumCorrectionTest, IsTheMomentumOfGradients) {
  std::mt19937 random(3);
  UpdateRule rule;
  rule.base_lr = 0.5F;
  rule.lr_policy = "step";
  rule.gamma = 0.25F;
  rule.stepsize = 3;
  rule.momentum = 0.9F;
  rule.warmup_iterations = 2;
  rule.warmup_base_lr = 0.1F;
  rule.momentum_correction = true;
  std::vector<float> parameters{1};
  std::vector<float> optimizer_state{0};
  double value = 1;
  double velocity = 0;
  for (int i = 0; i < 12; ++i) {
    const std::vector<float> gradient = NormalFloats(1, random);
    Update({rule, i, {}, 1}, gradient, parameters, optimizer_state);
    velocity = double{rule.momentum} * velocity + gradient[0];
    value -= LearningRate(rule, i) * velocity;
    EXPECT_NEAR(parameters[0], value, 1e-5) << i;
  }
}

// As if the policy itself had said so: the momentum of gradients sees the rates before and after.
TEST(RateScaleTest, HoldsFromItsIterationOn) {
  std::mt19937 random(4);
  UpdateRule rule;
  rule.base_lr = 0.5F;
  rule.momentum = 0.9F;
  rule.momentum_correction = true;
  rule.rate_scales = {{3, 2.0F}, {7, 0.5F}};
  std::vector<float> parameters{1};
  std::vector<float> optimizer_state{0};
  double value = 1;
  double velocity = 0;
  for (int i = 0; i < 12; ++i) {
    const double rate = i < 3 ? 0.5 : i < 7 ? 1.0 : 0.25;
    EXPECT_EQ(LearningRate(rule, i), rate) << i;
    const std::vector<float> gradient = NormalFloats(1, random);
    Update({rule, i, {}, 1}, gradient, parameters, optimizer_state);
    velocity = double{rule.momentum} * velocity + gradient[0];
    value -= rate * velocity;
    EXPECT_NEAR(parameters[0], value, 1e-5) << i;
  }
  rule.rate_scales[1].scale = -1;
  EXPECT_THROW(Validate(rule), ConfigError);
}

TEST(DeferredTest, IsTheSameUpdateLater) {
  std::mt19937 random(5);
  for (const char* type : {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}) {
    UpdateRule rule;
    rule.type = type;
    rule.momentum = rule.type == "AdaGrad" || rule.type == "RMSProp" ? 0.0F : 0.9F;
    rule.weight_decay = 0.01F;
    UpdateRule deferred = rule;
    deferred.deferred = true;
    const size_t count = 37;
    const size_t state = OptimizerStatePerParameter(rule);
    ASSERT_EQ(OptimizerStatePerParameter(deferred), static_cast<int>(state) + 1);
    std::vector<float> parameters = NormalFloats(count, random);
    std::vector<float> later = parameters;
    std::vector<float> optimizer_state(count * state);
    std::vector<float> later_optimizer_state(count * (state + 1));
    for (int i = 0; i < 5; ++i) {
      const std::vector<float> sum = NormalFloats(count, random);
      Update({rule, i, {2, 0.5F}, 0.25F}, sum, parameters, optimizer_state);
      const std::vector<float> before = later;
      // In two pieces, as chunks arrive.
      const size_t cut = 10;
      Update({deferred, i, {2, 0.5F}, 0.25F}, std::span(sum).first(cut),
             std::span(later).first(cut),
             std::span(later_optimizer_state).first(cut * (state + 1)));
      Update({deferred, i, {2, 0.5F}, 0.25F}, std::span(sum).subspan(cut),
             std::span(later).subspan(cut),
             std::span(later_optimizer_state).subspan(cut * (state + 1)));
      EXPECT_TRUE(SameBits(later, before)) << type;
      UpdateDeferred({deferred, i, {2, 0.5F}, 1}, later, later_optimizer_state);
      EXPECT_TRUE(SameBits(later, parameters)) << type << i;
    }
  }
}

TEST(DeferredTest, MeanGradientIsAllThereIs) {
  UpdateRule rule;
  rule.type = "MeanGradient";
  rule.deferred = true;
  Validate(rule);
  ASSERT_EQ(OptimizerStatePerParameter(rule), 1);
  std::vector<float> parameters{1, 2};
  std::vector<float> mean(2);
  const std::vector<float> sum{8, -4};
  Update({rule, 0, {}, 0.25F}, sum, parameters, mean);
  EXPECT_EQ(mean, (std::vector<float>{2, -1}));
  EXPECT_EQ(parameters, (std::vector<float>{1, 2}));
  // In place.
  Update({rule, 1, {}, 0.5F}, mean, parameters, mean);
  EXPECT_EQ(mean, (std::vector<float>{1, -0.5F}));
  Update({rule, 2, {}, 1}, mean, parameters, mean);
  EXPECT_EQ(mean, (std::vector<float>{1, -0.5F}));
}

}  // namespace
}  // namespace poseidon
