#include "core/arithmetic/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
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

// What Caffe's solver does, iteration by iteration (SGDSolver::GetLearningRate).
int CaffesStep(const std::vector<int>& stepvalue, int64_t iteration) {
  size_t step = 0;
  for (int64_t i = 0; i <= iteration; ++i) {
    if (step < stepvalue.size() && i >= stepvalue[step]) ++step;
  }
  return static_cast<int>(step);
}

TEST(LearningRate, StepsOfMultistepAreCaffesWhateverTheirOrder) {
  for (const std::vector<int>& stepvalue :
       {std::vector<int>{}, {0}, {0, 0, 0}, {3, 9}, {5, 5}, {5, 6, 5, 20}, {9, 3, 12, 12, 1}}) {
    for (int iteration = 0; iteration < 30; ++iteration) {
      EXPECT_EQ(StepsTaken(stepvalue, iteration), CaffesStep(stepvalue, iteration)) << iteration;
    }
  }
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

const char* const kTypes[] = {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"};

// LeNet's rule with another type, and decays far from 0 and 1, where a mistake shows.
UpdateRule RuleOf(const std::string& type) {
  UpdateRule rule = LeNetRule();
  rule.type = type;
  rule.momentum = type == "AdaGrad" || type == "RMSProp" ? 0.0F : 0.8F;
  rule.momentum2 = 0.95F;
  rule.rms_decay = 0.7F;
  rule.delta = 1e-3F;
  return rule;
}

struct State {
  std::vector<float> gradient, parameters, optimizer_state;
};

// An optimizer state without negative numbers, as a mean of squares has none.
State RandomState(size_t count, size_t state_per_parameter, std::mt19937& random) {
  std::normal_distribution<float> value;
  State state{std::vector<float>(count), std::vector<float>(count),
              std::vector<float>(count * state_per_parameter)};
  for (auto* vector : {&state.gradient, &state.parameters, &state.optimizer_state}) {
    for (float& f : *vector) f = random() % 8 == 0 ? 0.0F : value(random);
  }
  for (float& f : state.optimizer_state) f = std::abs(f);
  return state;
}

void ExpectSameBits(const State& actual, const State& expected) {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
  };
  EXPECT_TRUE(same(actual.parameters, expected.parameters));
  EXPECT_TRUE(same(actual.optimizer_state, expected.optimizer_state));
}

// One parameter under a rule in double, written from the papers' forms of the rules.
class DoubleParameter {
 public:
  DoubleParameter(const UpdateRule& rule, double value) : rule_(rule), value_(value) {}

  void Update(double gradient, double rate, int64_t iteration) {
    const double m = rule_.momentum;
    const double g = gradient + rule_.weight_decay * value_;
    if (rule_.type == "SGD") {
      velocity_ = m * velocity_ - rate * g;
      value_ += velocity_;
    } else if (rule_.type == "Nesterov") {
      // Caffe keeps the point where the gradient is taken: the parameter, ahead by m velocity.
      const double behind = value_ - m * velocity_;
      velocity_ = m * velocity_ - rate * g;
      value_ = behind + velocity_ + m * velocity_;
    } else if (rule_.type == "AdaGrad") {
      squares_ += g * g;
      value_ -= rate / (std::sqrt(squares_) + rule_.delta) * g;
    } else if (rule_.type == "RMSProp") {
      squares_ += (1 - double{rule_.rms_decay}) * (g * g - squares_);
      value_ -= rate / (std::sqrt(squares_) + rule_.delta) * g;
    } else if (rule_.type == "AdaDelta") {
      squares_ += (1 - m) * (g * g - squares_);
      const double step =
          -std::sqrt(step_squares_ + rule_.delta) / std::sqrt(squares_ + rule_.delta) * g;
      step_squares_ += (1 - m) * (step * step - step_squares_);
      value_ += rate * step;
    } else {
      const double m2 = rule_.momentum2;
      velocity_ += (1 - m) * (g - velocity_);
      squares_ += (1 - m2) * (g * g - squares_);
      double first_bias = 1, second_bias = 1;
      for (int64_t t = 0; t <= iteration; ++t) first_bias *= m, second_bias *= m2;
      // delta as Caffe's "eps hat": the correction of the paper's efficient form.
      const double corrected = rate * std::sqrt(1 - second_bias) / (1 - first_bias);
      value_ -= corrected * velocity_ / (std::sqrt(squares_) + rule_.delta);
    }
  }
  double value() const { return value_; }

 private:
  UpdateRule rule_;
  double value_;
  double velocity_ = 0, squares_ = 0, step_squares_ = 0;
};

TEST(Update, FollowsEachRuleInDoubleOverManyIterations) {
  std::mt19937 random(6);
  for (const char* type : kTypes) {
    const UpdateRule rule = RuleOf(type);
    const size_t count = 37;
    const Multipliers multipliers{2, 3};
    State state = RandomState(count, OptimizerStatePerParameter(rule), random);
    state.optimizer_state.assign(state.optimizer_state.size(), 0);
    UpdateRule decayed = rule;  // with the blob's decay
    decayed.weight_decay *= multipliers.decay;
    std::vector<DoubleParameter> expected;
    for (float parameter : state.parameters) expected.emplace_back(decayed, parameter);
    for (int64_t iteration = 0; iteration < 300; ++iteration) {
      const std::vector<float> gradient = RandomState(count, 0, random).gradient;
      Update({rule, iteration, multipliers, 0.25F, 0.5F}, gradient, state.parameters,
             state.optimizer_state);
      const double rate = 0.5 * 2 * LearningRate(rule, iteration);
      for (size_t i = 0; i < count; ++i) expected[i].Update(0.25 * gradient[i], rate, iteration);
      // Rounding adds up: 300 iterations of a few roundings of 6e-8 each.
      for (size_t i = 0; i < count; ++i) {
        ASSERT_NEAR(state.parameters[i], expected[i].value(), 2e-5)
            << type << ", iteration " << iteration << ", parameter " << i;
      }
    }
  }
}

TEST(Update, AdamStartsAtTheIterationItIsGiven) {
  UpdateRule rule = RuleOf("Adam");
  rule.lr_policy = "fixed";
  rule.weight_decay = 0;
  // The first step of Adam is the rate, whatever the gradient; later ones from no optimizer_state
  // are (1 - m) / (1 - m^t) sqrt((1 - m2^t) / (1 - m2)) of it.
  for (int64_t t : {1, 2, 50, 1'000'000'000}) {
    State state{{1000}, {0}, {0, 0}};
    Update({rule, t - 1, {}, 1}, state.gradient, state.parameters, state.optimizer_state);
    const double m = rule.momentum, m2 = rule.momentum2;
    const double share =
        (1 - m) / (1 - std::pow(m, t)) * std::sqrt((1 - std::pow(m2, t)) / (1 - m2));
    EXPECT_NEAR(state.parameters[0], -rule.base_lr * share, 1e-7) << t;
  }
}

// SGD of one parameter, an operation at a time; volatile keeps the compiler from fusing any two.
void UpdateByHand(const UpdateRule& rule, int64_t iteration, const Multipliers& multipliers,
                  float gradient_scale, size_t i, State& state) {
  const volatile float rate = LearningRate(rule, iteration) * multipliers.lr;
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
  const volatile float kept = rule.momentum * state.optimizer_state[i];
  const volatile float added = rate * gradient;
  state.optimizer_state[i] = kept + added;
  state.parameters[i] = parameter - state.optimizer_state[i];
}

void RandomRegularization(UpdateRule& rule, std::mt19937& random) {
  rule.weight_decay = random() % 3 == 0 ? 0.0F : 0.004F;
  rule.regularization = random() % 2 == 0 ? Regularization::kL1 : Regularization::kL2;
}

TEST(Update, SgdEqualsTheFormulaStepByStepToTheBit) {
  std::mt19937 random(4);
  for (size_t count : {0, 1, 2, 3, 5, 8, 13, 31, 61, 127, 1021, 4099}) {
    for (int trial = 0; trial < 20; ++trial) {
      UpdateRule rule = LeNetRule();
      rule.momentum = random() % 3 == 0 ? 0.0F : 0.9F;
      RandomRegularization(rule, random);
      const Multipliers multipliers{static_cast<float>(random() % 3),
                                    static_cast<float>(random() % 3)};
      State actual = RandomState(count, 1, random);
      State expected = actual;
      for (int64_t iteration = 0; iteration < 3; ++iteration) {
        Update({rule, iteration, multipliers, 1.0F / 3}, actual.gradient, actual.parameters,
               actual.optimizer_state);
        for (size_t i = 0; i < count; ++i) {
          UpdateByHand(rule, iteration, multipliers, 1.0F / 3, i, expected);
        }
      }
      ExpectSameBits(actual, expected);
    }
  }
}

TEST(Update, PiecesGiveTheSameBitsAsTheWhole) {
  std::mt19937 random(5);
  const size_t count = 5003;
  for (const char* type : kTypes) {
    for (int trial = 0; trial < 20; ++trial) {
      SCOPED_TRACE(type);
      UpdateRule rule = RuleOf(type);
      RandomRegularization(rule, random);
      const size_t state = OptimizerStatePerParameter(rule);
      State whole = RandomState(count, state, random);
      State pieces = whole;
      Update({rule, 7, {}, 0.25F}, whole.gradient, whole.parameters, whole.optimizer_state);
      for (size_t begin = 0; begin < count;) {
        const size_t size = std::min<size_t>(count - begin, random() % 97);
        Update({rule, 7, {}, 0.25F}, std::span(pieces.gradient).subspan(begin, size),
               std::span(pieces.parameters).subspan(begin, size),
               std::span(pieces.optimizer_state).subspan(begin * state, size * state));
        begin += size;
      }
      ExpectSameBits(pieces, whole);
    }
  }
}

TEST(Update, AnExampleByHand) {
  UpdateRule rule;
  rule.base_lr = 0.25F;
  rule.momentum = 0.5F;
  rule.weight_decay = 0.25F;
  EXPECT_EQ(OptimizerStatePerParameter(rule), 1);
  // Four workers' gradients sum to 8: g = 8/4 + (0.25 * 2) 4 = 4; rate = 0.25 * 2 / 2; v = 1; w
  // = 3.
  State state{{8}, {4}, {0}};
  Update({rule, 0, {2, 2}, 0.25F, 0.5F}, state.gradient, state.parameters, state.optimizer_state);
  EXPECT_EQ(state.optimizer_state[0], 1);
  EXPECT_EQ(state.parameters[0], 3);
  // g = 2 + 0.5 * 3 = 3.5; v = 0.5 + 0.875 = 1.375.
  Update({rule, 1, {2, 2}, 0.25F, 0.5F}, state.gradient, state.parameters, state.optimizer_state);
  EXPECT_EQ(state.optimizer_state[0], 1.375F);
  EXPECT_EQ(state.parameters[0], 1.625F);
}

TEST(Update, StateIsInterleavedParameterByParameter) {
  UpdateRule rule = RuleOf("Adam");
  rule.weight_decay = 0;
  rule.momentum = 0.5F;
  rule.momentum2 = 0.75F;
  EXPECT_EQ(OptimizerStatePerParameter(rule), 2);
  State state{{2, 4}, {0, 0}, {0, 0, 0, 0}};
  Update({rule, 0, {}, 1}, state.gradient, state.parameters, state.optimizer_state);
  EXPECT_THAT(state.optimizer_state, testing::ElementsAre(1, 1, 2, 4));
}

TEST(Update, AParameterWithoutGradientStaysWhereItIs) {
  for (const char* type : kTypes) {
    UpdateRule rule = RuleOf(type);
    rule.weight_decay = 0;
    State state{{0}, {1.5F}, std::vector<float>(OptimizerStatePerParameter(rule))};
    Update({rule, 0, {}, 1}, state.gradient, state.parameters, state.optimizer_state);
    EXPECT_EQ(state.parameters[0], 1.5F) << type;
  }
}

TEST(Update, L1PullsTowardsZeroAndLeavesZeroAlone) {
  UpdateRule rule;
  rule.base_lr = 1;
  rule.weight_decay = 0.5F;
  rule.regularization = Regularization::kL1;
  State state{{0, 0, 0}, {2, 0, -2}, {0, 0, 0}};
  Update({rule, 0, {}, 1}, state.gradient, state.parameters, state.optimizer_state);
  EXPECT_THAT(state.parameters, testing::ElementsAre(1.5F, 0.0F, -1.5F));
}

TEST(UpdateDeathTest, VectorsOfDifferentLengthsEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  std::vector<float> three(3), two(2);
  EXPECT_DEATH(Update({{}, 0, {}, 1}, two, three, three), "Check failed: gradient_sum.size\\(\\)");
  EXPECT_DEATH(Update({{}, 0, {}, 1}, three, three, two),
               "Check failed: optimizer_state.size\\(\\)");
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
  EXPECT_EQ(Refusal([](auto& r) { r.type = "Sdg"; }),
            "type is \"Sdg\"; it must be one of SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam, "
            "TorchSGD, TorchAdamW, MeanGradient");
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
            "power is inf; it must be a finite number, at least 0, for lr_policy \"inv\"");
  EXPECT_EQ(Refusal([](auto& r) { r.power = -1; }),
            "power is -1; it must be a finite number, at least 0, for lr_policy \"inv\"");
  EXPECT_EQ(Refusal([](auto& r) { r.power = 0; }), "") << "the rate stays";
}

TEST(Validate, ChecksTheFieldsThatTheTypeReads) {
  for (const char* type : kTypes) EXPECT_NO_THROW(Validate(RuleOf(type))) << type;
  // A rule of each type with one field changed.
  const auto refusal = [](const char* type, auto field, float value) {
    return Refusal([&](UpdateRule& rule) {
      rule = RuleOf(type);
      rule.*field = value;
    });
  };
  for (const char* type : {"AdaGrad", "RMSProp"}) {
    EXPECT_EQ(
        refusal(type, &UpdateRule::momentum, 0.9F),
        "momentum is 0.9; it must be 0 for type \"" + std::string(type) + "\", which has none");
  }
  for (const char* type : {"SGD", "Nesterov", "AdaDelta", "Adam"}) {
    EXPECT_THAT(refusal(type, &UpdateRule::momentum, 1),
                testing::HasSubstr("momentum is 1; it must be at least 0 and below 1"));
  }
  EXPECT_EQ(refusal("RMSProp", &UpdateRule::rms_decay, 1),
            "rms_decay is 1; it must be at least 0 and below 1 for type \"RMSProp\"");
  EXPECT_EQ(refusal("RMSProp", &UpdateRule::rms_decay, -0.5F),
            "rms_decay is -0.5; it must be at least 0 and below 1 for type \"RMSProp\"");
  EXPECT_EQ(refusal("Adam", &UpdateRule::momentum2, 1),
            "momentum2 is 1; it must be at least 0 and below 1 for type \"Adam\"");
  for (const char* type : {"AdaGrad", "RMSProp", "AdaDelta", "Adam"}) {
    EXPECT_EQ(refusal(type, &UpdateRule::delta, 0),
              "delta is 0; it must be a finite number above 0 for type \"" + std::string(type) +
                  "\", which divides by it");
  }
  // Fields of other types are not looked at, as in Caffe.
  for (auto field : {&UpdateRule::rms_decay, &UpdateRule::momentum2, &UpdateRule::delta}) {
    EXPECT_EQ(refusal("SGD", field, -1), "");
  }
}

TEST(Validate, WantsThePolicysFields) {
  EXPECT_EQ(Refusal([](auto& r) { r.lr_policy = "step"; }),
            "stepsize is 0; it must be above 0 for lr_policy \"step\"");
  EXPECT_EQ(Refusal([](auto& r) { r.lr_policy = "sigmoid"; }),
            "stepsize is 0; it must be above 0 for lr_policy \"sigmoid\"");
  EXPECT_EQ(Refusal([](auto& r) {
              r.lr_policy = "sigmoid";
              r.stepsize = 5;
              r.gamma = 0;
            }),
            "");
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
  EXPECT_EQ(multistep({5, -9}), "stepvalue is -9; it must be at least 0");
  EXPECT_EQ(multistep({5, 9, 9, 3}), "");
}

}  // namespace
}  // namespace poseidon
