#include "scheduler/iteration_counts.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

TEST(IterationCounts, WhoGoesOnWhereAnotherHasEndedIsUneven) {
  IterationCounts counts;
  counts.Done(0, 9);
  counts.Done(1, 9);
  counts.Finished(0);
  EXPECT_FALSE(counts.FindUneven());
  counts.Done(1, 10);
  const auto uneven = counts.FindUneven();
  ASSERT_TRUE(uneven);
  EXPECT_EQ(uneven->finished, 0);
  EXPECT_EQ(uneven->finished_after, 10);
  EXPECT_EQ(uneven->ahead, 1);
  EXPECT_EQ(uneven->ahead_after, 11);
}

TEST(IterationCounts, WhoEndsBehindTheOthersIsUneven) {
  IterationCounts counts;
  counts.Done(1, 0);
  counts.Finished(0);
  ASSERT_TRUE(counts.FindUneven());
  EXPECT_EQ(counts.FindUneven()->finished_after, 0);
}

// A worker that is slower than the one that has ended will end, too.
TEST(IterationCounts, WhoIsBehindIsNot) {
  IterationCounts counts;
  counts.Done(0, 9);
  counts.Done(1, 8);
  counts.Finished(0);
  EXPECT_FALSE(counts.FindUneven());
}

}  // namespace
}  // namespace poseidon
