#include "scheduler/iteration_counts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

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

TEST(IterationCounts, WhatIsHeardOfAfterTheEndCounts) {
  IterationCounts counts;
  counts.Done(0, 8);
  counts.Done(1, 9);
  counts.Finished(0);
  ASSERT_TRUE(counts.FindUneven());
  counts.Done(0, 9);
  EXPECT_FALSE(counts.FindUneven());
}

// Held against looking at every pair, which took a scheduler of 10,000 workers half an hour.
TEST(IterationCounts, FindsThoseThatAreFurthestApart) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    IterationCounts counts;
    std::map<int, int64_t> done;
    std::set<int> finished;
    for (int message = 0; message < 60; ++message) {
      const int rank = static_cast<int>(random() % 8);
      if (random() % 4 == 0) {
        counts.Finished(rank);
        finished.insert(rank);
        done.try_emplace(rank, 0);
      } else {
        const int64_t iteration = random() % 20;
        counts.Done(rank, iteration);
        done[rank] = std::max(done[rank], iteration + 1);
      }
      int64_t apart = 0;
      for (const int one : finished) {
        for (const auto& [other, iterations] : done) {
          apart = std::max(apart, iterations - done[one]);
        }
      }
      const auto uneven = counts.FindUneven();
      ASSERT_EQ(uneven.has_value(), apart > 0) << "seed " << seed;
      if (!uneven) continue;
      EXPECT_EQ(uneven->ahead_after - uneven->finished_after, apart);
      EXPECT_TRUE(finished.contains(uneven->finished));
      EXPECT_EQ(uneven->finished_after, done[uneven->finished]);
      EXPECT_EQ(uneven->ahead_after, done[uneven->ahead]);
    }
  }
}

TEST(IterationCounts, TenThousandWorkersAreAskedAboutAtOnce) {
  constexpr int kWorkers = 10000;
  IterationCounts counts;
  for (int rank = 0; rank < kWorkers; ++rank) {
    counts.Finished(rank);
    ASSERT_EQ(counts.FindUneven().has_value(), rank > 0);
    counts.Done(rank, 4);
    ASSERT_FALSE(counts.FindUneven());
  }
}

}  // namespace
}  // namespace poseidon
