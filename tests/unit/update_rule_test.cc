#include "core/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "core/error.h"

namespace poseidon {
namespace {

using Regularization = UpdateRule::Regularization;

UpdateRule LeNetRule() {
  UpdateRule rule;
  rule.base_lr = 0.01F;
  rule.lr_policy = "inv";
  rule.gamma = 0.0001F;
  rule.power = 0.75F;
  rule.momentum = 0.9F;
  rule.weight_decay = 0.0005F;
  return rule;
}

// --- Learning rates ---

TEST(LearningRate, InvGivesTheRatesThatCaffePrintsForLeNet) {
  EXPECT_FLOAT_EQ(LearningRate(LeNetRule(), 0), 0.01F);
  EXPECT_NEAR(LearningRate(LeNetRule(), 100), 0.00992565, 5e-9);
  EXPECT_NEAR(LearningRate(LeNetRule(), 9900), 0.00596843, 5e-9);
}

TEST(LearningRate, Fixed) {
  UpdateRule rule;
  rule.base_lr = 0.3F;
  for (int64_t iteration : {0, 1, 1000000}) EXPECT_EQ(LearningRate(rule, iteration), 0.3F);
}

TEST(LearningRate, StepAndMultistepFallAtTheSameIterations) {
  UpdateRule step;
  step.base_lr = 2;
  step.lr_policy = "step";
  step.gamma = 0.5F;
  step.stepsize = 7;
  UpdateRule multistep = step;
  multistep.lr_policy = "multistep";
  multistep.stepvalue = {7, 14, 21};
  float expected = 2;
  for (int iteration = 0; iteration < 28; ++iteration) {
    if (iteration > 0 && iteration % 7 == 0) expected /= 2;  // exact in binary
    EXPECT_EQ(LearningRate(step, iteration), expected) << iteration;
    EXPECT_EQ(LearningRate(multistep, iteration), expected) << iteration;
  }
}

TEST(LearningRate, ExpIsRepeatedMultiplication) {
  UpdateRule rule;
  rule.base_lr = 0.1F;
  rule.lr_policy = "exp";
  rule.gamma = 0.97F;
  double expected = rule.base_lr;
  for (int iteration = 0; iteration < 300; ++iteration, expected *= rule.gamma) {
    EXPECT_FLOAT_EQ(LearningRate(rule, iteration), static_cast<float>(expected)) << iteration;
  }
}

TEST(LearningRate, PolyFallsToZeroAndStaysThere) {
  UpdateRule rule;
  rule.base_lr = 8;
  rule.lr_policy = "poly";
  rule.power = 2;
  rule.max_iter = 100;
  EXPECT_FLOAT_EQ(LearningRate(rule, 0), 8);
  EXPECT_FLOAT_EQ(LearningRate(rule, 50), 2);
  EXPECT_FLOAT_EQ(LearningRate(rule, 75), 0.5);
  EXPECT_EQ(LearningRate(rule, 100), 0);
  EXPECT_EQ(LearningRate(rule, 101), 0);
}

TEST(LearningRate, SigmoidIsHalfwayAtStepsizeAndSymmetric) {
  UpdateRule rule;
  rule.base_lr = 1;
  rule.lr_policy = "sigmoid";
  rule.gamma = 0.1F;
  rule.stepsize = 50;
  EXPECT_FLOAT_EQ(LearningRate(rule, 50), 0.5);
  EXPECT_FLOAT_EQ(LearningRate(rule, 60), 0.731058579F);  // 1 / (1 + 1/e)
  EXPECT_FLOAT_EQ(LearningRate(rule, 33) + LearningRate(rule, 67), 1);
}

// --- Updates ---

struct State {
  std::vector<float> gradient, parameters, history;
};

State RandomState(size_t count, std::mt19937& random) {
  std::normal_distribution<float> value;
  State state{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
  for (auto* vector : {&state.gradient, &state.parameters, &state.history}) {
    for (float& f : *vector) f = random() % 8 == 0 ? 0.0F : value(random);
  }
  return state;
}

// One parameter, one operation at a time; volatile keeps the compiler from fusing any two.
void UpdateByHand(const UpdateRule& rule, float learning_rate, const Multipliers& multipliers,
                  float gradient_scale, size_t i, State& state) {
  const volatile float rate = learning_rate * multipliers.lr;
  const volatile float decay = rule.weight_decay * multipliers.decay;
  const float parameter = state.parameters[i];
  volatile float gradient = state.gradient[i] * gradient_scale;
  if (decay != 0) {
    float direction = parameter;
    if (rule.regularization == Regularization::kL1) {
      direction = parameter > 0 ? 1.0F : parameter < 0 ? -1.0F : 0.0F;
    }
    const volatile float pull = decay * direction;
    gradient = gradient + pull;
  }
  const volatile float kept = rule.momentum * state.history[i];
  const volatile float added = rate * gradient;
  state.history[i] = kept + added;
  state.parameters[i] = parameter - state.history[i];
}

void ExpectSameBits(const State& actual, const State& expected) {
  const size_t bytes = expected.parameters.size() * sizeof(float);
  if (bytes == 0) return;
  EXPECT_EQ(std::memcmp(actual.parameters.data(), expected.parameters.data(), bytes), 0);
  EXPECT_EQ(std::memcmp(actual.history.data(), expected.history.data(), bytes), 0);
}

UpdateRule RandomRule(std::mt19937& random) {
  UpdateRule rule = LeNetRule();
  rule.momentum = random() % 3 == 0 ? 0.0F : 0.9F;
  rule.weight_decay = random() % 3 == 0 ? 0.0F : 0.004F;
  rule.regularization = random() % 2 == 0 ? Regularization::kL1 : Regularization::kL2;
  return rule;
}

TEST(Update, EqualsTheFormulaStepByStepToTheBit) {
  std::mt19937 random(4);
  for (size_t count : {0, 1, 2, 3, 5, 8, 13, 31, 61, 127, 1021, 4099}) {
    for (int trial = 0; trial < 20; ++trial) {
      const UpdateRule rule = RandomRule(random);
      const Multipliers multipliers{static_cast<float>(random() % 3),
                                    static_cast<float>(random() % 3)};
      State actual = RandomState(count, random);
      State expected = actual;
      for (int iteration = 0; iteration < 3; ++iteration) {
        const float rate = LearningRate(rule, iteration);
        Update(rule, rate, multipliers, actual.gradient, 1.0F / 3, actual.parameters,
               actual.history);
        for (size_t i = 0; i < count; ++i) {
          UpdateByHand(rule, rate, multipliers, 1.0F / 3, i, expected);
        }
      }
      ExpectSameBits(actual, expected);
    }
  }
}

TEST(Update, PiecesGiveTheSameBitsAsTheWhole) {
  std::mt19937 random(5);
  const size_t count = 5003;
  for (int trial = 0; trial < 40; ++trial) {
    const UpdateRule rule = RandomRule(random);
    State whole = RandomState(count, random);
    State pieces = whole;
    Update(rule, 0.01F, {}, whole.gradient, 0.25F, whole.parameters, whole.history);
    for (size_t begin = 0; begin < count;) {
      const size_t size = std::min<size_t>(count - begin, random() % 97);
      Update(rule, 0.01F, {}, std::span(pieces.gradient).subspan(begin, size), 0.25F,
             std::span(pieces.parameters).subspan(begin, size),
             std::span(pieces.history).subspan(begin, size));
      begin += size;
    }
    ExpectSameBits(pieces, whole);
  }
}

TEST(Update, AnExampleByHand) {
  UpdateRule rule;
  rule.momentum = 0.5F;
  rule.weight_decay = 0.25F;
  EXPECT_EQ(StatePerParameter(rule), 1);
  // Four workers' gradients sum to 8: g = 8/4 + (0.25 * 2) 4 = 4; lr = 0.125 * 2; v = 1; w = 3.
  State state{{8}, {4}, {0}};
  Update(rule, 0.125F, {2, 2}, state.gradient, 0.25F, state.parameters, state.history);
  EXPECT_EQ(state.history[0], 1);
  EXPECT_EQ(state.parameters[0], 3);
  // g = 2 + 0.5 * 3 = 3.5; v = 0.5 + 0.875 = 1.375.
  Update(rule, 0.125F, {2, 2}, state.gradient, 0.25F, state.parameters, state.history);
  EXPECT_EQ(state.history[0], 1.375F);
  EXPECT_EQ(state.parameters[0], 1.625F);
}

TEST(Update, L1PullsTowardsZeroAndLeavesZeroAlone) {
  UpdateRule rule;
  rule.weight_decay = 0.5F;
  rule.regularization = Regularization::kL1;
  State state{{0, 0, 0}, {2, 0, -2}, {0, 0, 0}};
  Update(rule, 1, {}, state.gradient, 1, state.parameters, state.history);
  EXPECT_THAT(state.parameters, testing::ElementsAre(1.5F, 0.0F, -1.5F));
}

TEST(UpdateDeathTest, VectorsOfDifferentLengthsEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> three(3), two(2);
  EXPECT_DEATH(Update({}, 1, {}, two, 1, three, three), "Check failed: gradient_sum.size\\(\\)");
  EXPECT_DEATH(Update({}, 1, {}, three, 1, three, two), "Check failed: history.size\\(\\)");
}

// --- Validation ---

std::string Refusal(const std::function<void(UpdateRule&)>& change) {
  UpdateRule rule = LeNetRule();
  change(rule);
  try {
    Validate(rule);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Validate, AcceptsEveryPolicyWithItsFields) {
  UpdateRule rule = LeNetRule();
  rule.stepsize = 10;
  rule.stepvalue = {0, 10, 20};
  rule.max_iter = 100;
  for (const char* policy : {"fixed", "step", "exp", "inv", "multistep", "poly", "sigmoid"}) {
    rule.lr_policy = policy;
    EXPECT_NO_THROW(Validate(rule)) << policy;
  }
}

TEST(Validate, NamesTheFieldAndWhatItMustBe) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(Refusal([](auto& r) { r.type = "Sdg"; }), "type is \"Sdg\"; it must be SGD");
  EXPECT_EQ(Refusal([](auto& r) { r.lr_policy = "stp"; }),
            "lr_policy is \"stp\"; it must be one of fixed, step, exp, inv, multistep, poly, "
            "sigmoid");
  EXPECT_EQ(Refusal([](auto& r) { r.base_lr = -1; }),
            "base_lr is -1; it must be a finite number, at least 0");
  EXPECT_EQ(Refusal([=](auto& r) { r.base_lr = nan; }),
            "base_lr is nan; it must be a finite number, at least 0");
  EXPECT_EQ(Refusal([=](auto& r) { r.weight_decay = infinity; }),
            "weight_decay is inf; it must be a finite number, at least 0");
  EXPECT_EQ(Refusal([](auto& r) { r.momentum = 1; }),
            "momentum is 1; it must be at least 0 and below 1, or the updates would grow without "
            "end");
  EXPECT_EQ(Refusal([](auto& r) { r.gamma = 0; }),
            "gamma is 0; it must be above 0 for lr_policy \"inv\"");
  EXPECT_EQ(Refusal([=](auto& r) { r.power = infinity; }),
            "power is inf; it must be above 0 for lr_policy \"inv\"");
}

TEST(Validate, WantsThePolicysFields) {
  EXPECT_EQ(Refusal([](auto& r) { r.lr_policy = "step"; }),
            "stepsize is 0; it must be above 0 for lr_policy \"step\"");
  EXPECT_EQ(Refusal([](auto& r) { r.lr_policy = "sigmoid"; }),
            "stepsize is 0; it must be above 0 for lr_policy \"sigmoid\"");
  EXPECT_EQ(Refusal([](auto& r) { r.lr_policy = "poly"; }),
            "max_iter is 0; it must be above 0 for lr_policy \"poly\"");
  const auto multistep = [](std::vector<int> stepvalue) {
    return Refusal([&](auto& r) {
      r.lr_policy = "multistep";
      r.stepvalue = stepvalue;
    });
  };
  EXPECT_EQ(multistep({}), "stepvalue is missing; it must be given for lr_policy \"multistep\"");
  EXPECT_EQ(multistep({-1, 5}), "stepvalue is -1; it must be at least 0");
  EXPECT_EQ(multistep({5, 9, 9}), "stepvalue is 9; it must be ascending, above the 9 before it");
}

}  // namespace
}  // namespace poseidon
