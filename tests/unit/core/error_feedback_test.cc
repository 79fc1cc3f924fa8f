// Why one bit and top-k need error feedback: gradient descent with gradients that two workers pack,
// as they would for a server, finds the minimum with it and does not without.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "core/arithmetic/codec.h"

namespace poseidon {
namespace {

constexpr size_t kFloats = 64;
constexpr size_t kNoisy = 4;
constexpr int kWorkers = 2;

// The worker's gradient of |w|^2 / 2, whose minimum is 0, plus what only its own data says: the two
// workers' cancel. Some of that is large, so that top-k sees nothing else; the rest is larger than
// what is left of the parameters, so that on each worker all signs are the same.
std::vector<float> Gradient(const std::vector<float>& parameters, int worker,
                            const std::vector<float>& noise) {
  std::vector<float> gradient = parameters;
  for (size_t i = 0; i < kFloats; ++i) {
    const float own = i < kNoisy ? noise[i] : 0.5F;
    gradient[i] += worker == 0 ? own : -own;
  }
  return gradient;
}

// The largest parameter after descending from 0.4 and -0.4, mean over the second half of the way.
double DescendWith(const Codec& codec, bool feedback) {
  constexpr int kSteps = 2000;
  constexpr float kRate = 0.02F;
  std::mt19937 random(3);
  std::exponential_distribution<float> size(0.1F);
  std::vector<float> parameters(kFloats);
  for (size_t i = 0; i < kFloats; ++i) parameters[i] = i % 2 == 0 ? 0.4F : -0.4F;
  std::vector<double> mean(kFloats);
  std::vector<std::vector<float>> residuals(kWorkers, std::vector<float>(feedback ? kFloats : 0));
  std::vector<std::byte> frame(EncodedBytes(codec, kFloats));
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> noise(kNoisy);
    for (float& value : noise) value = 5 + size(random);
    std::vector<float> sum(kFloats);
    for (int worker = 0; worker < kWorkers; ++worker) {
      Encode(codec, Gradient(parameters, worker, noise), residuals[worker], frame);
      EXPECT_TRUE(AddDecoded(codec, frame, sum));
    }
    for (size_t i = 0; i < kFloats; ++i) {
      parameters[i] -= kRate * sum[i] / kWorkers;
      if (step >= kSteps / 2) mean[i] += parameters[i] / (kSteps - kSteps / 2);
    }
  }
  double largest = 0;
  for (const double value : mean) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST(ErrorFeedbackTest, IsWhatMakesLossyCodecsConverge) {
  EXPECT_LT(DescendWith({CodecType::kFp32, 0}, false), 0.01);
  for (const Codec& codec :
       {Codec{CodecType::kOneBit, 0}, Codec{CodecType::kTopK, 4.0 / kFloats}}) {
    SCOPED_TRACE(static_cast<int>(codec.type));
    EXPECT_LT(DescendWith(codec, true), 0.1);
    EXPECT_GT(DescendWith(codec, false), 0.3);
  }
}

}  // namespace
}  // namespace poseidon
