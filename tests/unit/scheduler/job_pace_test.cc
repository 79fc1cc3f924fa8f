// How long an iteration takes where worker 0 tests, for times that are worked out by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "scheduler/monitor/summary_status.h"
#include "scheduler/report/job_report.h"

namespace poseidon {
namespace {

constexpr int kIterations = 20;

// For two workers; an iteration is predicted to take 100 ms.
wire::PlanAndModel PredictedPlan() {
  wire::PlanAndModel plan;
  plan.mutable_plan()->set_workers(2);
  plan.mutable_plan()->set_iteration_ms(100);
  return plan;
}

// Of 8 samples an iteration; `seconds` of each iteration as it tells it, tests included.
void Train(JobReport& report, int rank, const std::vector<double>& seconds, double whole,
           double exposed) {
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    wire::Progress progress;
    progress.set_rank(rank);
    progress.set_iteration(iteration);
    progress.set_iteration_seconds(seconds[iteration]);
    report.OnProgress(progress, Time());
  }
  wire::WorkerReport finished;
  finished.set_rank(rank);
  finished.set_iterations(kIterations);
  finished.set_images(8 * kIterations);
  finished.set_training_seconds(whole);
  finished.set_exposed_seconds(exposed);
  finished.set_parameter_hash("ab");
  report.OnFinished(finished);
}

double Number(const JobReport& report, const char* key) {
  return nlohmann::json::parse(report.Json("job", {}))[key].get<double>();
}

// The others wait for it in the next iteration.
TEST(JobPaceTest, IsWithoutATest) {
  JobReport report(2);
  wire::PlanAndModel plan = PredictedPlan();
  report.OnPlan(plan);
  for (const int rank : {0, 1}) {
    std::vector<double> seconds(kIterations, 0.1);
    seconds[10 + rank] = 1.1;
    Train(report, rank, seconds, rank == 0 ? 2 : 3, rank == 0 ? 0.5 : 1.5);
  }
  EXPECT_DOUBLE_EQ(Number(report, "iteration_ms"), 100);
  EXPECT_DOUBLE_EQ(Number(report, "images_per_second"), 160);
  EXPECT_THAT(report.Closing(), testing::HasSubstr("predicted 100.00 ms, measured 100.00 ms"));
  // Who runs apart from worker 0 does not wait for it.
  plan.mutable_plan()->set_staleness(1);
  report.OnPlan(plan);
  EXPECT_DOUBLE_EQ(Number(report, "iteration_ms"), 150);
}

// Half a second in each iteration, which the others wait for or, being slower, do not.
TEST(JobPaceTest, IsThatOfASlowerWorkerWhileWorkerZeroTests) {
  for (const bool slower : {false, true}) {
    JobReport report(2);
    report.OnPlan(PredictedPlan());
    const std::vector<double> seconds(kIterations, 0.6);
    Train(report, 0, seconds, 2, 0);
    Train(report, 1, seconds, 12, slower ? 0 : 10);
    EXPECT_DOUBLE_EQ(Number(report, "iteration_ms"), slower ? 600 : 100);
    EXPECT_DOUBLE_EQ(Number(report, "images_per_second"), 320.0 / (slower ? 12 : 2));
    const char* const measured = slower ? "measured 600.00 ms" : "measured 100.00 ms";
    EXPECT_THAT(report.Closing(), testing::HasSubstr(measured));
  }
}

// After the last iteration, in a program that does not tell its tests apart, as a patched Caffe.
TEST(JobPaceTest, IsWithoutWhatWorkerZeroDoesLast) {
  JobReport report(2);
  report.OnPlan(PredictedPlan());
  const std::vector<double> seconds(kIterations, 0.1);
  Train(report, 0, seconds, 12, 1);
  Train(report, 1, seconds, 2, 1);
  EXPECT_DOUBLE_EQ(Number(report, "iteration_ms"), 100);
  EXPECT_DOUBLE_EQ(Number(report, "images_per_second"), 160);
}

// Workers of 0.1 s and 0.4 s an iteration that do not wait for each other do 8 samples each in
// theirs, 100 a second together, as in iterations of 160 ms.
TEST(JobPaceTest, OfWorkersThatDoNotWaitForEachOtherTheRatesAddUp) {
  std::vector<wire::IterationRecord> records;
  JobReport report(2, [&](const wire::JournalRecord& record) {
    if (record.has_iteration()) records.push_back(record.iteration());
  });
  wire::PlanAndModel plan = PredictedPlan();
  plan.mutable_plan()->set_iteration_ms(160);
  plan.mutable_plan()->set_staleness(-1);
  report.OnPlan(plan);
  std::string line;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    for (const int rank : {0, 1}) {
      wire::Progress progress;
      progress.set_rank(rank);
      progress.set_iteration(iteration);
      progress.set_images(8);
      progress.set_iteration_seconds(rank == 0 ? 0.1 : 0.4);
      line = report.OnProgress(progress, Seconds(2 * iteration)).value_or("");
    }
  }
  EXPECT_THAT(line, testing::HasSubstr("  100 images/s  "));
  ASSERT_EQ(records.size(), kIterations);
  EXPECT_DOUBLE_EQ(records.back().together_ms(), 160);
  EXPECT_DOUBLE_EQ(records.back().slowest_ms(), 400);
  EXPECT_DOUBLE_EQ(records.back().duration_ms(), 250) << "a mean, as in summary.json";
  for (const int rank : {0, 1}) {
    wire::WorkerReport finished;
    finished.set_rank(rank);
    finished.set_iterations(kIterations);
    finished.set_training_seconds(kIterations * 0.4);  // its last exchange ends with the other's
    report.OnFinished(finished);
  }
  EXPECT_THAT(report.Closing(),
              testing::HasSubstr("predicted 160.00 ms, measured 160.00 ms (+0%)"));
  // As the monitor has shown it (MonitorStatusTest).
  const auto history = StatusOfSummary(report.Json("job", {}), "summary.json")["history"];
  EXPECT_DOUBLE_EQ(history["images_per_second"][0].get<double>(), 100);
  EXPECT_DOUBLE_EQ(history["iteration_ms"][0].get<double>(), 250);
}

}  // namespace
}  // namespace poseidon
