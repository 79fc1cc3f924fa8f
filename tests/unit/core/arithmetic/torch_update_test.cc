#include "core/arithmetic/torch_update.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "core/error.h"

namespace poseidon {
namespace {

struct State {
  std::vector<float> parameters, optimizer_state;
};

int StateOf(std::string_view type) { return type == kTorchSgd ? 1 : 2; }

State RandomState(std::string_view type, size_t count, std::mt19937& random) {
  std::normal_distribution<float> value;
  State state{std::vector<float>(count), std::vector<float>(count * StateOf(type))};
  for (float& f : state.parameters) f = value(random);
  for (float& f : state.optimizer_state) f = std::abs(value(random));
  return state;
}

std::vector<float> RandomGradient(size_t count, std::mt19937& random) {
  std::normal_distribution<float> value;
  std::vector<float> gradient(count);
  for (float& f : gradient) f = random() % 8 == 0 ? 0.0F : value(random);
  return gradient;
}

void ExpectSameBits(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0);
}

constexpr ParameterGroup kMomentum{
    .learning_rate = 0.1, .weight_decay = 5e-4, .momentum = 0.9, .dampening = 0.3};
constexpr ParameterGroup kNesterov{
    .learning_rate = 0.1, .weight_decay = 5e-4, .momentum = 0.9, .nesterov = true};
constexpr ParameterGroup kAdamW{.learning_rate = 1e-3,
                                .weight_decay = 0.01,
                                .momentum = 0.9,
                                .momentum2 = 0.999,
                                .delta = 1e-8};

ParameterGroup Maximized(ParameterGroup group) {
  group.maximize = true;
  return group;
}

// --- What PyTorch 2.15 itself computes, on a processor with AVX-512. Each of five parameters
// begins with (5 i mod 7 - 3) / 4, has the gradient ((37 i + 11 t) mod 23 - 11) / 8 in step t, from
// 0, and the group's rate times (1 + t mod 4) / 4; a hundred steps. ---

constexpr int kCount = 5;
constexpr int kSteps = 100;

State Trained(std::string_view type, const ParameterGroup& group) {
  State state{std::vector<float>(kCount),
              std::vector<float>(static_cast<size_t>(kCount * StateOf(type)))};
  for (int i = 0; i < kCount; ++i) {
    state.parameters[i] = static_cast<float>(i * 5 % 7 - 3) / 4;
  }
  for (int t = 0; t < kSteps; ++t) {
    std::vector<float> sum(kCount);  // of four workers
    for (int i = 0; i < kCount; ++i) sum[i] = static_cast<float>((i * 37 + t * 11) % 23 - 11) / 2;
    ParameterGroup now = group;
    now.learning_rate = group.learning_rate * (1 + t % 4) / 4;
    UpdateByTorch(type, now, t, 0.25F, sum, state.parameters, state.optimizer_state);
  }
  return state;
}

TEST(UpdateByTorch, SgdHasTheBitsOfPyTorchAfterAHundredSteps) {
  const State plain = Trained(kTorchSgd, {.learning_rate = 0.1});
  ExpectSameBits(plain.parameters, {-0x1.be6668p-1F, 0x1.29999cp-1F, 0x1.19999cp-4F,
                                    -0x1.c6666ep-2F, 0x1.033336p-1F});
  ExpectSameBits(plain.optimizer_state, std::vector<float>(kCount));
  const State dampened = Trained(kTorchSgd, Maximized(kMomentum));
  ExpectSameBits(dampened.parameters, {-0x1.0937c4p-1F, 0x1.46352cp-3F, -0x1.6b3e3ep-1F,
                                       -0x1.cefd74p-3F, 0x1.5f1ce4p+0F});
  ExpectSameBits(dampened.optimizer_state, {-0x1.0b1d16p-1F, 0x1.3d3fd6p-1F, 0x1.f4f7cep-2F,
                                            -0x1.803ec2p-3F, -0x1.3d472ep+0F});
  const State nesterov = Trained(kTorchSgd, kNesterov);
  ExpectSameBits(nesterov.parameters, {-0x1.6e8e46p+0F, 0x1.13c9e2p+0F, 0x1.9a9392p-1F,
                                       -0x1.18f1f8p-1F, -0x1.66d04ep-2F});
  ExpectSameBits(nesterov.optimizer_state, {0x1.78b97ap-1F, -0x1.c26dd4p-1F, -0x1.6585f0p-1F,
                                            0x1.0e9dc8p-2F, 0x1.c6d228p+0F});
}

// State by state: the means of gradients, then of their squares.
std::vector<float> Separated(const std::vector<float>& interleaved) {
  std::vector<float> separated(interleaved.size());
  for (size_t i = 0; i < interleaved.size(); ++i) {
    separated[i % 2 * interleaved.size() / 2 + i / 2] = interleaved[i];
  }
  return separated;
}

// Its square roots are MKL's, one in five of which is a unit in the last place off; so a step, of
// at most some twice the rate, may be off by a few units of its own, and each of a hundred sums by
// one of the parameter's, which is below 1.
void ExpectNearly(const std::vector<float>& actual, const std::vector<float>& pytorchs,
                  double rate) {
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], pytorchs[i], kSteps * (2 * rate * 0x1p-22 + 0x1p-25)) << i;
  }
}

TEST(UpdateByTorch, AdamWHasPyTorchsStateToTheBitAndItsParametersButForItsSquareRoot) {
  const State usual = Trained(kTorchAdamW, kAdamW);
  ExpectNearly(usual.parameters,
               {-0x1.803a8ap-1F, 0x1.0093d8p-1F, 0x1.46051ap-9F, -0x1.003e2cp-1F, 0x1.7e7856p-1F},
               1e-3);
  ExpectSameBits(Separated(usual.optimizer_state),
                 {0x1.30596cp-4F, -0x1.698f46p-4F, -0x1.1fde48p-4F, 0x1.b36b94p-6F, 0x1.6bdca4p-3F,
                  0x1.11333cp-4F, 0x1.1160f2p-4F, 0x1.07c46ap-4F, 0x1.08f41ep-4F, 0x1.0aa0f0p-4F});
  const State other = Trained(kTorchAdamW, {.learning_rate = 1e-2,
                                            .weight_decay = 0.1,
                                            .momentum = 0.3,
                                            .momentum2 = 0.95,
                                            .delta = 1e-3,
                                            .maximize = true});
  ExpectNearly(other.parameters,
               {-0x1.648aeep-1F, 0x1.ceec2ap-2F, -0x1.05cac6p-6F, -0x1.e6b5f6p-2F, 0x1.71b860p-1F},
               1e-2);
  ExpectSameBits(Separated(other.optimizer_state),
                 {0x1.15fd58p-6F, -0x1.bdf5dep-1F, 0x1.c21c2cp-5F, 0x1.087088p-1F, -0x1.23dc88p-1F,
                  0x1.68c4c0p-1F, 0x1.77bdc4p-1F, 0x1.449318p-1F, 0x1.52d672p-1F, 0x1.658d82p-1F});
}

// --- The formulas, in double as the papers have them. ---

class DoubleParameter {
 public:
  explicit DoubleParameter(double value) : value_(value) {}

  void Update(std::string_view type, const ParameterGroup& group, double gradient,
              int64_t iteration) {
    double g = group.maximize ? -gradient : gradient;
    if (type == kTorchSgd) {
      g += group.weight_decay * value_;
      if (group.momentum != 0) {
        mean_ = iteration == 0 ? g : group.momentum * mean_ + (1 - group.dampening) * g;
        g = group.nesterov ? g + group.momentum * mean_ : mean_;
      }
      value_ -= group.learning_rate * g;
      return;
    }
    value_ -= group.learning_rate * group.weight_decay * value_;
    mean_ = group.momentum * mean_ + (1 - group.momentum) * g;
    squares_ = group.momentum2 * squares_ + (1 - group.momentum2) * g * g;
    double bias1 = 1, bias2 = 1;
    for (int64_t t = 0; t <= iteration; ++t) bias1 *= group.momentum, bias2 *= group.momentum2;
    const double mean = mean_ / (1 - bias1), squares = squares_ / (1 - bias2);
    value_ -= group.learning_rate * mean / (std::sqrt(squares) + group.delta);
  }
  double value() const { return value_; }

 private:
  double value_;
  double mean_ = 0, squares_ = 0;
};

TEST(UpdateByTorch, FollowsTheFormulasInDoubleOverManyIterations) {
  std::mt19937 random(3);
  const std::vector<std::pair<std::string_view, ParameterGroup>> cases = {
      {kTorchSgd, {.learning_rate = 0.01}},
      {kTorchSgd, {.learning_rate = 0.01, .weight_decay = 0.1}},
      {kTorchSgd, {.learning_rate = 0.01, .momentum = 0.8, .dampening = 0.5}},
      {kTorchSgd, Maximized({.learning_rate = 0.01, .momentum = 0.8, .nesterov = true})},
      {kTorchAdamW, kAdamW},
      {kTorchAdamW, Maximized(kAdamW)},
      {kTorchAdamW, {.learning_rate = 0.01, .momentum = 0.5, .momentum2 = 0.9, .delta = 0.1}}};
  for (const auto& [type, group] : cases) {
    State state = RandomState(type, 37, random);
    state.optimizer_state.assign(state.optimizer_state.size(), 0);
    std::vector<DoubleParameter> expected;
    for (const float parameter : state.parameters) expected.emplace_back(parameter);
    for (int64_t iteration = 0; iteration < 300; ++iteration) {
      const std::vector<float> gradient = RandomGradient(37, random);
      UpdateByTorch(type, group, iteration, 0.25F, gradient, state.parameters,
                    state.optimizer_state);
      for (size_t i = 0; i < gradient.size(); ++i) {
        expected[i].Update(type, group, 0.25 * gradient[i], iteration);
        // Each iteration may round the parameter twice, and its step, which is smaller.
        const double bound = 300 * 3 * 0x1p-24 * std::max(1.0, std::abs(expected[i].value()));
        ASSERT_NEAR(state.parameters[i], expected[i].value(), bound)
            << type << ", iteration " << iteration << ", parameter " << i;
      }
    }
  }
}

TEST(UpdateByTorch, PiecesGiveTheSameBitsAsTheWholeAndAsOneByOne) {
  std::mt19937 random(5);
  const size_t count = 5003;
  for (const auto& [type, group] :
       {std::pair{kTorchSgd, kMomentum}, std::pair{kTorchSgd, kNesterov},
        std::pair{kTorchAdamW, kAdamW}}) {
    SCOPED_TRACE(type);
    const size_t each = StateOf(type);
    State whole = RandomState(type, count, random);
    State pieces = whole;
    const std::vector<float> gradient = RandomGradient(count, random);
    UpdateByTorch(type, group, 7, 0.25F, gradient, whole.parameters, whole.optimizer_state);
    for (size_t begin = 0; begin < count;) {
      // One at a time never meets the vectorized loop.
      const size_t size = begin < 100 ? 1 : std::min<size_t>(count - begin, random() % 97);
      UpdateByTorch(type, group, 7, 0.25F, std::span(gradient).subspan(begin, size),
                    std::span(pieces.parameters).subspan(begin, size),
                    std::span(pieces.optimizer_state).subspan(begin * each, size * each));
      begin += size;
    }
    ExpectSameBits(pieces.parameters, whole.parameters);
    ExpectSameBits(pieces.optimizer_state, whole.optimizer_state);
  }
}

TEST(UpdateByTorch, TheFirstStepIsNotDampened) {
  ParameterGroup group{.learning_rate = 1, .momentum = 0.5, .dampening = 0.75};
  State state{{0}, {0}};
  UpdateByTorch(kTorchSgd, group, 0, 1, std::vector<float>{4}, state.parameters,
                state.optimizer_state);
  EXPECT_EQ(state.optimizer_state[0], 4);
  UpdateByTorch(kTorchSgd, group, 1, 1, std::vector<float>{4}, state.parameters,
                state.optimizer_state);
  EXPECT_EQ(state.optimizer_state[0], 3);  // 0.5 * 4 + 0.25 * 4
  EXPECT_EQ(state.parameters[0], -7);
}

TEST(UpdateByTorch, WithoutMomentumAndDecayInfiniteParametersStayInfinite) {
  const float infinite = std::numeric_limits<float>::infinity();
  State state{{infinite}, {2}};
  UpdateByTorch(kTorchSgd, {.learning_rate = 1}, 3, 1, std::vector<float>{4}, state.parameters,
                state.optimizer_state);
  EXPECT_EQ(state.parameters[0], infinite);
  EXPECT_EQ(state.optimizer_state[0], 2);
}

TEST(UpdateByTorch, IsWhatARuleOfItsTypeDoes) {
  std::mt19937 random(8);
  for (const auto& [type, group] :
       {std::pair{kTorchSgd, kNesterov}, std::pair{kTorchAdamW, kAdamW}}) {
    UpdateRule rule;
    rule.type = type;
    Validate(rule);
    EXPECT_EQ(OptimizerStatePerParameter(rule), StateOf(type));
    State expected = RandomState(type, 31, random);
    State actual = expected;
    const std::vector<float> gradient = RandomGradient(31, random);
    UpdateByTorch(type, group, 2, 0.5F, gradient, expected.parameters, expected.optimizer_state);
    Update({.rule = rule, .iteration = 2, .gradient_scale = 0.5F, .group = &group}, gradient,
           actual.parameters, actual.optimizer_state);
    ExpectSameBits(actual.parameters, expected.parameters);
    ExpectSameBits(actual.optimizer_state, expected.optimizer_state);
  }
}

TEST(UpdateByTorch, ARuleOfItsTypeCannotBeDeferred) {
  UpdateRule rule;
  rule.type = kTorchSgd;
  rule.deferred = true;
  EXPECT_THROW(Validate(rule), ConfigError);
}

// --- Validation ---

std::string Refusal(std::string_view type, const std::function<void(ParameterGroup&)>& change) {
  ParameterGroup group = type == kTorchSgd ? kNesterov : kAdamW;
  change(group);
  try {
    Validate(type, group);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ValidateGroup, RefusesWhatTheOptimizersRefuse) {
  using Group = ParameterGroup;
  for (const std::string_view type : {kTorchSgd, kTorchAdamW}) {
    EXPECT_EQ(Refusal(type, [](Group&) {}), "");
    EXPECT_EQ(Refusal(type, [](Group& group) { group.learning_rate = -1; }),
              "lr is -1; it must be a finite number, at least 0");
    EXPECT_EQ(Refusal(type, [](Group& group) { group.weight_decay = NAN; }),
              "weight_decay is nan; it must be a finite number, at least 0");
  }
  EXPECT_EQ(Refusal(kTorchSgd, [](Group& group) { group.momentum = 0; }),
            "momentum is 0; it must be above 0 with nesterov");
  EXPECT_EQ(Refusal(kTorchSgd, [](Group& group) { group.dampening = 0.5; }),
            "dampening is 0.5; it must be 0 with nesterov");
  EXPECT_EQ(Refusal(kTorchAdamW, [](Group& group) { group.momentum = 1; }),
            "betas[0] is 1; it must be at least 0 and below 1");
  EXPECT_EQ(Refusal(kTorchAdamW, [](Group& group) { group.momentum2 = -0.5; }),
            "betas[1] is -0.5; it must be at least 0 and below 1");
  EXPECT_EQ(Refusal(kTorchAdamW, [](Group& group) { group.delta = -1e-8; }),
            "eps is -1e-08; it must be a finite number, at least 0");
  // What the other optimizer reads is not looked at.
  EXPECT_EQ(Refusal(kTorchSgd, [](Group& group) { group.momentum2 = 7; }), "");
  EXPECT_EQ(Refusal(kTorchAdamW, [](Group& group) { group.dampening = NAN; }), "");
}

}  // namespace
}  // namespace poseidon
