#include "transport/lane_holds.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

TEST(LaneHoldsTest, PercentilesAreRightToATenth) {
  LaneHolds holds;
  for (int i = 1; i <= 1000; ++i) holds.Add(std::chrono::microseconds(10 * i));
  const LaneHolds::Counts counts = holds.counts();
  for (const double share : {0.1, 0.5, 0.9, 0.99, 1.0}) {
    EXPECT_GE(LaneHolds::Percentile(counts, share), 0.01 * share - 1e-12) << share;
    EXPECT_LE(LaneHolds::Percentile(counts, share), 0.01 * share * 1.1) << share;
  }
}

TEST(LaneHoldsTest, WhatIsShortOrLongIsCounted) {
  LaneHolds holds;
  EXPECT_EQ(LaneHolds::Percentile(holds.counts(), 0.5), 0);
  holds.Add(std::chrono::nanoseconds(3));
  EXPECT_LE(LaneHolds::Percentile(holds.counts(), 1), 1.1e-6);
  holds.Add(std::chrono::hours(10000));
  EXPECT_GT(LaneHolds::Percentile(holds.counts(), 1), 86400);
}

TEST(LaneHoldsTest, OnlyWhatCameSinceCounts) {
  LaneHolds holds;
  holds.Add(std::chrono::seconds(1));
  const LaneHolds::Counts before = holds.counts();
  holds.Add(std::chrono::milliseconds(1));
  EXPECT_LE(LaneHolds::Percentile(holds.counts() - before, 1), 1.1e-3);
  EXPECT_GT(LaneHolds::Percentile(holds.counts() - before + before, 1), 0.9);
}

}  // namespace
}  // namespace poseidon
