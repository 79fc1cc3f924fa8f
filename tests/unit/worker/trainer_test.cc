// When worker 0 tests and writes snapshots. Whole trainings are
// tests/simulation/worker_net_test.cc.
#include "worker/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace poseidon {
namespace {

using testing::ElementsAre;

// Of the iterations from `begin` on.
std::vector<int64_t> Tested(const TrainerOptions& options, int64_t begin) {
  std::vector<int64_t> tested;
  for (int64_t iteration = begin; iteration < begin + 10; ++iteration) {
    if (options.TestIsDue(iteration)) tested.push_back(iteration);
  }
  return tested;
}

TEST(TrainerTest, TestsAtEachIntervalAsCaffeDoes) {
  TrainerOptions options;
  EXPECT_THAT(Tested(options, 0), ElementsAre());
  options.test_interval = 5;
  EXPECT_THAT(Tested(options, 0), ElementsAre(0, 5));
  EXPECT_THAT(Tested(options, 500), ElementsAre(500, 505));
  options.test_initialization = false;
  EXPECT_THAT(Tested(options, 0), ElementsAre(5));
  EXPECT_THAT(Tested(options, 500), ElementsAre(500, 505)) << "goes on from a snapshot";
}

TEST(DoneIterationTest, IsDoneAgainWhereTrainingGoesBackBehindIt) {
  DoneIteration done;
  EXPECT_FALSE(done.is(0));
  done.Set(7);
  EXPECT_TRUE(done.is(7));
  EXPECT_FALSE(done.is(8));
  done.GoBack(7);  // its parameters are what they were
  EXPECT_TRUE(done.is(7));
  done.GoBack(6);
  EXPECT_FALSE(done.is(7));
  EXPECT_FALSE(done.is(6));
}

}  // namespace
}  // namespace poseidon
