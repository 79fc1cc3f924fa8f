// IterationMeans beside a list of all values.
#include "scheduler/report/iteration_means.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "scheduler/report/unknown_value.h"

namespace poseidon {
namespace {

// By places of `stride` values, from the first that begins at `index` or after it.
std::vector<double> MeansOf(const std::vector<double>& values, int64_t stride, int64_t index) {
  std::vector<double> means;
  const auto size = static_cast<int64_t>(values.size());
  for (int64_t begin = (index + stride - 1) / stride * stride; begin < size; begin += stride) {
    double sum = 0;
    int told = 0;
    for (int64_t i = begin; i < std::min(begin + stride, size); ++i) {
      if (std::isnan(values[i])) continue;
      sum += values[i];
      ++told;
    }
    means.push_back(told > 0 ? sum / told : kUnknownValue);
  }
  return means;
}

// Values are small whole numbers, of which sums are exact in any order.
TEST(IterationMeansTest, AreTheMeansOfAllValuesInAnyOrder) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t least, int64_t most) {
    return std::uniform_int_distribution<int64_t>(least, most)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    const auto most = static_cast<size_t>(draw(2, 9));
    IterationMeans means(most);
    std::vector<double> values;
    while (static_cast<int64_t>(values.size()) < draw(1, 200)) {
      // Some that come one after another, in another order.
      const auto begin = static_cast<int64_t>(values.size());
      std::vector<int64_t> indices(draw(1, 5));
      for (size_t i = 0; i < indices.size(); ++i) indices[i] = begin + static_cast<int64_t>(i);
      std::ranges::shuffle(indices, random);
      values.resize(begin + indices.size());
      for (const int64_t index : indices) {
        values[index] = draw(0, 3) == 0 ? kUnknownValue : static_cast<double>(draw(-9, 9));
        means.Add(index, values[index]);
      }
      if (draw(0, 9) == 0) {
        const int64_t kept = draw(0, means.size() / means.stride()) * means.stride();
        means.CutFrom(kept);
        values.resize(kept);
      }
      ASSERT_EQ(means.size(), static_cast<int64_t>(values.size()));
      const int64_t from = draw(0, means.size());
      ASSERT_THAT(means.Means(from), testing::Pointwise(testing::NanSensitiveDoubleEq(),
                                                        MeansOf(values, means.stride(), from)));
      ASSERT_LE(means.Means().size(), most);
    }
  }
}

TEST(IterationMeansTest, OfAPlaceThatIsCutTheMeanStays) {
  IterationMeans means(2);
  for (int64_t i = 0; i < 8; ++i) means.Add(i, static_cast<double>(i));
  ASSERT_EQ(means.stride(), 4);
  means.CutFrom(5);
  EXPECT_EQ(means.size(), 5);
  EXPECT_THAT(means.Means(), testing::ElementsAre(1.5, 5.5));
  // The one that is kept counts as one.
  means.Add(5, 7.5);
  EXPECT_THAT(means.Means(), testing::ElementsAre(1.5, 6.5));
  means.CutFrom(100);
  EXPECT_EQ(means.size(), 6);
  means.CutFrom(0);
  EXPECT_THAT(means.Means(), testing::IsEmpty());
}

}  // namespace
}  // namespace poseidon
