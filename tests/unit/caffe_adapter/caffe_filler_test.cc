#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "caffe_adapter/net/filler.h"
#include "core/error.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> FillWith(const std::string& text, const Shape& shape, uint64_t seed = 1) {
  caffe::FillerParameter filler;
  ParseText(text, "filler", filler);
  std::vector<float> values(static_cast<size_t>(Count(shape)), -99);
  Fill(filler, shape, seed, values);
  return values;
}

struct Statistics {
  double mean;
  double deviation;
  double min;
  double max;
};

Statistics StatisticsOf(const std::vector<float>& values) {
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double squares = 0;
  for (const float value : values) squares += (value - mean) * (value - mean);
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return {mean, std::sqrt(squares / n), *min, *max};
}

// 40,000 values; a mean is then off by 1/200 of the deviation, and three times that is rare.
const Shape kShape = {50, 20, 8, 5};
constexpr double kTolerance = 0.015;

TEST(CaffeFillerTest, Constant) {
  EXPECT_THAT(FillWith("", {2, 2}), Each(0));
  EXPECT_THAT(FillWith("value: 0.5", {2, 2}), Each(0.5F));
  EXPECT_THAT(FillWith("value: 3", {}), ElementsAre(3));
}

TEST(CaffeFillerTest, Uniform) {
  const Statistics s = StatisticsOf(FillWith("type: 'uniform' min: -2 max: 4", kShape));
  EXPECT_NEAR(s.mean, 1, 6 * kTolerance);
  EXPECT_NEAR(s.deviation, 6 / std::sqrt(12), 6 * kTolerance);
  EXPECT_GE(s.min, -2);
  EXPECT_LT(s.min, -1.99);
  EXPECT_LE(s.max, 4);
  EXPECT_GT(s.max, 3.99);
}

TEST(CaffeFillerTest, Gaussian) {
  const std::vector<float> values = FillWith("type: 'gaussian' mean: 1 std: 2", kShape);
  const Statistics s = StatisticsOf(values);
  EXPECT_NEAR(s.mean, 1, 2 * kTolerance);
  EXPECT_NEAR(s.deviation, 2, 2 * kTolerance);
  const auto within = std::count_if(values.begin(), values.end(),
                                    [](float value) { return std::abs(value - 1) < 2; });
  EXPECT_NEAR(static_cast<double>(within) / 40000, 0.6827, kTolerance);
}

TEST(CaffeFillerTest, SparseGaussianKeepsSoManyOfTheOutputs) {
  const std::vector<float> values = FillWith("type: 'gaussian' sparse: 10", kShape);
  const auto kept = std::count_if(values.begin(), values.end(), [](float v) { return v != 0; });
  EXPECT_NEAR(static_cast<double>(kept) / 40000, 10.0 / 50, kTolerance);
}

TEST(CaffeFillerTest, XavierAndMsraVariance) {
  // 50 outputs of 20 x 8 x 5 = 800 inputs each; an input feeds 50 x 8 x 5 = 2000.
  const auto deviation = [](const std::string& text) {
    return StatisticsOf(FillWith(text, kShape)).deviation;
  };
  for (const auto& [norm, n] :
       {std::pair("FAN_IN", 800.0), std::pair("FAN_OUT", 2000.0), std::pair("AVERAGE", 1400.0)}) {
    const std::string fields = std::string(" variance_norm: ") + norm;
    EXPECT_NEAR(deviation("type: 'xavier'" + fields) * std::sqrt(n), 1, kTolerance) << norm;
    EXPECT_NEAR(deviation("type: 'msra'" + fields) * std::sqrt(n / 2), 1, kTolerance) << norm;
  }
  const Statistics s = StatisticsOf(FillWith("type: 'xavier'", kShape));
  EXPECT_LE(s.max, std::sqrt(3.0 / 800));
  EXPECT_GE(s.min, -std::sqrt(3.0 / 800));
}

TEST(CaffeFillerTest, PositiveUnitball) {
  const std::vector<float> values = FillWith("type: 'positive_unitball'", {5, 3, 7});
  for (int output = 0; output < 5; ++output) {
    const auto begin = values.begin() + output * 21;
    EXPECT_NEAR(std::accumulate(begin, begin + 21, 0.0), 1, 1e-6);
    EXPECT_GE(*std::min_element(begin, begin + 21), 0);
  }
}

TEST(CaffeFillerTest, BilinearUpsamplesByItsFactor) {
  // For factor 2 the kernel of 4 is the outer product of (1, 3, 3, 1) / 4.
  const std::vector<float> values = FillWith("type: 'bilinear'", {2, 1, 4, 4});
  const float line[] = {0.25, 0.75, 0.75, 0.25};
  for (int i = 0; i < 32; ++i) EXPECT_FLOAT_EQ(values[i], line[i / 4 % 4] * line[i % 4]);
}

TEST(CaffeFillerTest, SeedsDecideTheValues) {
  EXPECT_EQ(FillWith("type: 'xavier'", {4, 5}, 3), FillWith("type: 'xavier'", {4, 5}, 3));
  EXPECT_NE(FillWith("type: 'xavier'", {4, 5}, 3), FillWith("type: 'xavier'", {4, 5}, 4));
  EXPECT_NE(BlobSeed(1, "ip1", 0), BlobSeed(1, "ip1", 1));
  EXPECT_NE(BlobSeed(1, "ip1", 0), BlobSeed(1, "ip2", 0));
  EXPECT_NE(BlobSeed(1, "ip1", 0), BlobSeed(2, "ip1", 0));
}

TEST(CaffeFillerTest, FillersThatCannotBe) {
  const auto error_of = [](const std::string& text, const Shape& shape) {
    return MessageOf<ConfigError>([&] { FillWith(text, shape); });
  };
  EXPECT_EQ(error_of("type: 'Xavier'", {2, 2}),
            "unknown filler type \"Xavier\"; known are constant uniform gaussian xavier msra "
            "positive_unitball bilinear");
  EXPECT_THAT(error_of("type: 'uniform' sparse: 3", {2, 2}), HasSubstr("sparse"));
  EXPECT_THAT(error_of("type: 'bilinear'", {2, 2}), HasSubstr("4 axes"));
  EXPECT_THAT(error_of("type: 'bilinear'", {2, 2, 3, 4}), HasSubstr("square"));
  EXPECT_THAT(error_of("type: 'msra'", {}), HasSubstr("scalar"));
}

}  // namespace
}  // namespace poseidon
