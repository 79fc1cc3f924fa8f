// Each update rule on a CUDA device against Update() on the host, bit for bit. Where no device can
// be used it says so and exits with 77, which ctest counts as skipped.
#include "core/update_rule.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "tests/gpu/update_kernel.h"

namespace poseidon {
namespace {

// Of many magnitudes, so that there are subnormal squares among the states, and some 0.
std::vector<float> RandomFloats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> value;
  std::vector<float> floats(count);
  for (float& f : floats) {
    f = random() % 8 == 0 ? 0.0F : std::exp(8 * value(random) - 8) * value(random);
  }
  return floats;
}

void ExpectSameBits(const std::vector<float>& device, const std::vector<float>& host) {
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(device[i]), std::bit_cast<uint32_t>(host[i]))
        << device[i] << " on the device, " << host[i] << " on the host, float " << i;
  }
}

class UpdateOnDeviceTest : public testing::TestWithParam<std::tuple<const char*, DecayKind>> {};

TEST_P(UpdateOnDeviceTest, HasTheBitsOfTheHost) {
  const auto [type, decay] = GetParam();
  UpdateRule rule;
  rule.type = type;
  rule.base_lr = 0.05F;
  rule.momentum = rule.type == "AdaGrad" || rule.type == "RMSProp" ? 0.0F : 0.9F;
  rule.weight_decay = decay == DecayKind::kNone ? 0.0F : 0.004F;
  if (decay == DecayKind::kL1) rule.regularization = UpdateRule::Regularization::kL1;
  const Multipliers multipliers{2, 0.5F};

  std::mt19937 random(1);
  const size_t count = 100'003;  // not a multiple of a block of threads
  std::vector<float> host_parameters = RandomFloats(count, random);
  std::vector<float> host_history(count * StatePerParameter(rule));
  std::vector<float> parameters = host_parameters, history = host_history;
  for (int64_t iteration = 0; iteration < 20; ++iteration) {
    const std::vector<float> gradient = RandomFloats(count, random);
    Update(rule, iteration, multipliers, gradient, 0.25F, host_parameters, host_history, 0.5F);
    UpdateOnDevice(type, decay, ScalarsOf(rule, iteration, multipliers, 0.25F, 0.5F), gradient,
                   parameters, history);
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(parameters, host_parameters));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(history, host_history));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, UpdateOnDeviceTest,
    testing::Combine(testing::Values("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"),
                     testing::Values(DecayKind::kNone, DecayKind::kL1, DecayKind::kL2)));

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const poseidon::Devices devices = poseidon::CudaDevices();
  if (devices.count == 0) {
    std::printf("skipped: no CUDA device: %s\n", devices.why_none.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
