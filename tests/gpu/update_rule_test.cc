// Each update rule on a GPU against Update() on the host, bit for bit.
#include "core/arithmetic/update_rule.h"

#include <string>
#include <tuple>

#include "device/cuda/update.h"
#include "tests/gpu/on_device.h"

namespace poseidon {
namespace {

enum class Decay { kNone, kL1, kL2 };

UpdateRule RuleOf(const char* type, Decay decay) {
  UpdateRule rule;
  rule.type = type;
  rule.base_lr = 0.05F;
  rule.momentum = rule.type == "AdaGrad" || rule.type == "RMSProp" ? 0.0F : 0.9F;
  rule.weight_decay = decay == Decay::kNone ? 0.0F : 0.004F;
  if (decay == Decay::kL1) rule.regularization = UpdateRule::Regularization::kL1;
  return rule;
}

constexpr Multipliers kMultipliers{2, 0.5F};
constexpr size_t kCount = 100'003;  // not a multiple of a block of threads

class UpdateOnDevice : public testing::TestWithParam<std::tuple<const char*, Decay>> {};

TEST_P(UpdateOnDevice, HasTheBitsOfTheHost) {
  const auto [type, decay] = GetParam();
  const UpdateRule rule = RuleOf(type, decay);
  std::mt19937 random(1);
  std::vector<float> parameters = FloatsOfManySizes(kCount, random);
  std::vector<float> optimizer_state(kCount * OptimizerStatePerParameter(rule));
  const OnDevice device_parameters(parameters), device_optimizer_state(optimizer_state);
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    const std::vector<float> gradient = FloatsOfManySizes(kCount, random);
    const OnDevice device_gradient(gradient);
    Update({rule, iteration, kMultipliers, 0.25F, 0.5F}, gradient, parameters, optimizer_state);
    cuda::Update({rule, iteration, kMultipliers, 0.25F, 0.5F}, device_gradient.span(),
                 device_parameters.span(), device_optimizer_state.span(), kDefaultStream);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_parameters.Values(), parameters));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_optimizer_state.Values(), optimizer_state));
  }
}

TEST_P(UpdateOnDevice, DeferredHasTheBitsOfTheHost) {
  const auto [type, decay] = GetParam();
  UpdateRule rule = RuleOf(type, decay);
  rule.deferred = true;
  std::mt19937 random(2);
  std::vector<float> parameters = FloatsOfManySizes(kCount, random);
  std::vector<float> optimizer_state(kCount * OptimizerStatePerParameter(rule));
  const OnDevice device_parameters(parameters), device_optimizer_state(optimizer_state);
  for (int64_t iteration = 0; iteration < 5; ++iteration) {
    const std::vector<float> gradient = FloatsOfManySizes(kCount, random);
    const OnDevice device_gradient(gradient);
    Update({rule, iteration, kMultipliers, 0.25F}, gradient, parameters, optimizer_state);
    cuda::Update({rule, iteration, kMultipliers, 0.25F}, device_gradient.span(),
                 device_parameters.span(), device_optimizer_state.span(), kDefaultStream);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_optimizer_state.Values(), optimizer_state));
    UpdateDeferred({rule, iteration, kMultipliers, 0.5F}, parameters, optimizer_state);
    cuda::UpdateDeferred({rule, iteration, kMultipliers, 0.5F}, device_parameters.span(),
                         device_optimizer_state.span(), kDefaultStream);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_parameters.Values(), parameters));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_optimizer_state.Values(), optimizer_state));
  }
}

class TorchOnDevice : public testing::TestWithParam<std::tuple<std::string_view, ParameterGroup>> {
};

TEST_P(TorchOnDevice, HasTheBitsOfTheHost) {
  const auto& [type, group] = GetParam();
  UpdateRule rule;
  rule.type = type;
  std::mt19937 random(3);
  std::vector<float> parameters = FloatsOfManySizes(kCount, random);
  std::vector<float> optimizer_state(kCount * OptimizerStatePerParameter(rule));
  const OnDevice device_parameters(parameters), device_optimizer_state(optimizer_state);
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    const std::vector<float> gradient = FloatsOfManySizes(kCount, random);
    const OnDevice device_gradient(gradient);
    const UpdateStep step{
        .rule = rule, .iteration = iteration, .gradient_scale = 0.25F, .group = &group};
    Update(step, gradient, parameters, optimizer_state);
    cuda::Update(step, device_gradient.span(), device_parameters.span(),
                 device_optimizer_state.span(), kDefaultStream);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_parameters.Values(), parameters));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(device_optimizer_state.Values(), optimizer_state));
  }
}

constexpr ParameterGroup kDampened{.learning_rate = 0.1,
                                   .weight_decay = 5e-4,
                                   .momentum = 0.9,
                                   .dampening = 0.3,
                                   .maximize = true};
constexpr ParameterGroup kNesterov{
    .learning_rate = 0.1, .weight_decay = 5e-4, .momentum = 0.9, .nesterov = true};
constexpr ParameterGroup kAdamW{.learning_rate = 1e-3,
                                .weight_decay = 0.01,
                                .momentum = 0.9,
                                .momentum2 = 0.999,
                                .delta = 1e-8};

INSTANTIATE_TEST_SUITE_P(
    All, TorchOnDevice,
    testing::Values(std::tuple{kTorchSgd, ParameterGroup{.learning_rate = 0.1}},
                    std::tuple{kTorchSgd, kDampened}, std::tuple{kTorchSgd, kNesterov},
                    std::tuple{kTorchAdamW, kAdamW}));

INSTANTIATE_TEST_SUITE_P(All, UpdateOnDevice,
                         testing::Combine(testing::Values("SGD", "Nesterov", "AdaGrad", "RMSProp",
                                                          "AdaDelta", "Adam"),
                                          testing::Values(Decay::kNone, Decay::kL1, Decay::kL2)));

}  // namespace
}  // namespace poseidon
