// The lines that a job shows while it trains, for times that are worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/report/job_report.h"

namespace poseidon {
namespace {

// Of 100 samples of one worker, told at so many seconds.
std::string LineOf(JobReport& report, int64_t iteration, double seconds, double told) {
  wire::Progress progress;
  progress.set_iteration(iteration);
  progress.set_loss(1);
  progress.set_images(100);
  progress.set_iteration_seconds(seconds);
  return report.OnProgress(progress, Seconds(told)).value_or("nothing");
}

TEST(ProgressLineTest, TheRateIsByTheTimeOfTheIterations) {
  JobReport report(1);
  EXPECT_EQ(LineOf(report, 0, 2, 2), "nothing");
  EXPECT_THAT(LineOf(report, 1, 2, 4),
              testing::HasSubstr("iteration 2  loss 1.0000  50 images/s  "));
  EXPECT_THAT(LineOf(report, 2, 4, 8), testing::HasSubstr("  25 images/s  "));
}

TEST(ProgressLineTest, ASlowNetsRateIsNotRoundedToNothing) {
  JobReport report(1);
  EXPECT_EQ(LineOf(report, 0, 400, 400), "nothing");
  EXPECT_THAT(LineOf(report, 1, 400, 800), testing::HasSubstr("  0.25 images/s  "));
  EXPECT_THAT(LineOf(report, 2, 30, 830), testing::HasSubstr("  3.33 images/s  "));
  EXPECT_THAT(LineOf(report, 3, 0.03, 832), testing::HasSubstr("  3333 images/s  "));
}

TEST(ProgressLineTest, WhatIsToldAgainAfterARestartIsNotOfOneMoment) {
  JobReport report(1);
  wire::JournalRecord before;
  before.mutable_iteration()->set_number(0);
  report.Restore(before);
  for (int64_t iteration = 1; iteration <= 30; ++iteration) {
    EXPECT_EQ(LineOf(report, iteration, 1, 60), "nothing");
  }
  EXPECT_THAT(LineOf(report, 31, 1, 61), testing::HasSubstr("  100 images/s  "));
}

}  // namespace
}  // namespace poseidon
