// Divisions of random batches among workers of random speeds.
#include "planner/batch_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace poseidon {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Ge;

TEST(BatchPartsTest, WorkersGetWhatTheirSpeedAsksFor) {
  EXPECT_THAT(DivideBatch(28, {2, 2, 2, 1}), ElementsAre(8, 8, 8, 4));
  EXPECT_THAT(DivideBatch(128, {1, 1, 0.5, 1}), ElementsAre(37, 37, 18, 36));
  EXPECT_THAT(DivideBatch(5, {1}), ElementsAre(5));
}

TEST(BatchPartsTest, NobodyIsWithoutASample) {
  EXPECT_THAT(DivideBatch(4, {1000, 1, 1, 1}), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(DivideBatch(6, {1e9, 1, 1}), ElementsAre(4, 1, 1));
}

TEST(BatchPartsTest, PartsAreWholeSamplesOfTheBatchWithinOneOfTheirShare) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const size_t workers = 1 + random() % 40;
    const auto samples = static_cast<int64_t>(workers + random() % 4000);
    std::vector<double> speeds;
    for (size_t i = 0; i < workers; ++i) {
      speeds.push_back(std::lognormal_distribution<double>(0, 1)(random));
    }
    const std::vector<int64_t> parts = DivideBatch(samples, speeds);
    SCOPED_TRACE("seed " + std::to_string(seed));
    ASSERT_EQ(parts.size(), workers);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), int64_t{0}), samples);
    EXPECT_THAT(parts, Each(Ge(1)));
    const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0);
    const auto share = [&](size_t i) { return static_cast<double>(samples) * speeds[i] / all; };
    bool raised = false;
    for (size_t i = 0; i < workers; ++i) raised |= share(i) < 1;
    for (size_t i = 0; i < workers; ++i) {
      if (raised) {
        EXPECT_LT(static_cast<double>(parts[i]), share(i) + 1);
      } else {
        EXPECT_LT(std::abs(static_cast<double>(parts[i]) - share(i)), 1) << "worker " << i;
      }
    }
  }
}

TEST(BatchPartsTest, APlanBeginsWithTheConfigsPartsOrPartsBySpeed) {
  Plan plan;
  plan.set_workers(3);
  ModelSpec model;
  model.set_batch(8);
  Job job;
  SetFirstParts(job, model, plan);
  EXPECT_THAT(plan.parts(), ElementsAre());
  Training& training = *job.mutable_training();
  training.set_batch(Training::BALANCED);
  SetFirstParts(job, model, plan);
  EXPECT_THAT(plan.parts(), ElementsAre(8, 8, 8));
  plan.clear_parts();
  Deviation& deviation = *job.mutable_cluster()->add_deviation();
  deviation.set_worker(1);
  deviation.set_compute_factor(2);
  model.set_batch(10);
  SetFirstParts(job, model, plan);
  EXPECT_THAT(plan.parts(), ElementsAre(12, 6, 12));
  plan.clear_parts();
  for (const int part : {3, 20, 1}) training.add_part(part);
  SetFirstParts(job, model, plan);
  EXPECT_THAT(plan.parts(), ElementsAre(3, 20, 1));
}

// Those that the planner counts for an iteration are more.
TEST(BatchPartsTest, PartsAreOfAPass) {
  Plan plan;
  plan.set_workers(2);
  Job job;
  job.mutable_training()->set_batch(Training::BALANCED);
  ModelSpec model;
  model.set_batch(24);
  model.set_passes(3);
  SetFirstParts(job, model, plan);
  EXPECT_THAT(plan.parts(), ElementsAre(8, 8));
}

}  // namespace
}  // namespace poseidon
