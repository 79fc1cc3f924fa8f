// Why int8, one bit and top-k need error feedback: gradient descent with gradients that two workers
// pack, as they would for a server, finds the minimum with it and does not without.
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

// What only a worker's own data says, of kNoisy floats and of the others.
struct Noise {
  float least_large = 5;
  float small = 0.5F;
};

// The worker's gradient of |w|^2 / 2, whose minimum is 0, plus what only its own data says: the two
// workers' cancel. Some of that is large, so that top-k sees nothing else; the rest is larger than
// what is left of the parameters, so that on each worker all signs are the same.
std::vector<float> Gradient(const std::vector<float>& parameters, int worker,
                            const std::vector<float>& noise, float small) {
  std::vector<float> gradient = parameters;
  for (size_t i = 0; i < kFloats; ++i) {
    const float own = i < kNoisy ? noise[i] : small;
    gradient[i] += worker == 0 ? own : -own;
  }
  return gradient;
}

// The largest parameter after descending from 0.4 and -0.4, mean over the second half of the way.
double DescendWith(const Codec& codec, bool feedback, Noise own = {}) {
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
    for (float& value : noise) value = own.least_large + size(random);
    std::vector<float> sum(kFloats);
    for (int worker = 0; worker < kWorkers; ++worker) {
      Encode(codec, Gradient(parameters, worker, noise, own.small), residuals[worker], frame);
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

// Beside floats of 200 a step of int8 is 1.6: what is below 0.8 would never be sent.
TEST(ErrorFeedbackTest, IsWhatMovesSmallFloatsBesideLargeOnes) {
  constexpr Codec kInt8{CodecType::kInt8};
  constexpr Noise kLarge{.least_large = 200, .small = 0};
  EXPECT_LT(DescendWith(kInt8, true, kLarge), 0.1);
  EXPECT_GT(DescendWith(kInt8, false, kLarge), 0.3);
}

}  // namespace
}  // namespace poseidon
