// summary.json and the closing text, for a job whose numbers are worked out by hand.
#include "scheduler/report/job_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <tuple>

#include "transport/address.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Two layers of 3 and 7 floats in one bucket, and one of 5.
wire::PlanAndModel TwoBuckets(bool predicted) {
  wire::PlanAndModel plan;
  for (const int64_t floats : {3, 7, 5}) {
    LayerSpec& layer = *plan.mutable_model()->add_layers();
    layer.set_name("layer" + std::to_string(floats));
    layer.add_blobs()->add_shape(floats);
  }
  plan.mutable_plan()->set_workers(2);
  plan.mutable_plan()->set_servers(1);
  const auto add = [&](const char* name, int first, int count, Scheme scheme, int64_t floats) {
    BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
    bucket.set_name(name);
    bucket.set_first_layer(first);
    bucket.set_layer_count(count);
    bucket.set_scheme(scheme);
    bucket.add_chunks()->set_size(floats);
    if (predicted) bucket.mutable_prediction()->set_exchange_ms(10);
  };
  add("layer3..layer7", 0, 2, RING, 10);
  add("layer5", 2, 1, PS, 5);
  if (predicted) plan.mutable_plan()->set_iteration_ms(100);
  return plan;
}

wire::WorkerReport Report(int rank, double exchange_seconds) {
  wire::WorkerReport report;
  report.set_rank(rank);
  report.set_iterations(20);
  report.set_training_seconds(2.2);
  report.set_parameter_hash("ab");
  for (const int64_t bytes : {160, 400}) {
    wire::BucketTraffic& bucket = *report.add_buckets();
    bucket.set_bytes_sent(bytes);
    bucket.set_bytes_received(bytes + 1);
    bucket.set_exchange_seconds(exchange_seconds);
    bucket.set_exchanges(10);
  }
  return report;
}

TEST(JobReportTest, LinksAreThoseThatWorkersHaveMeasured) {
  JobReport report(3);
  EXPECT_FALSE(nlohmann::json::parse(report.Json("job", {})).contains("links"));
  wire::LinkReport links;
  links.set_rank(2);
  wire::LinkMeasurement& link = *links.add_links();
  link.set_distance(2);
  link.set_latency_seconds(0.25);
  link.set_goodput_bytes_per_second(1e6);
  report.OnLinks(links);
  report.OnPlan(TwoBuckets(false));  // for two workers, as one has left
  const nlohmann::json expected = nlohmann::json::parse(
      R"([{"from": 2, "to": 1, "latency_ms": 250.0, "goodput_bytes_per_second": 1e6}])");
  EXPECT_EQ(nlohmann::json::parse(report.Json("job", {}))["links"], expected);
}

TEST(JobReportTest, StragglersAreInTheSummary) {
  JobReport report(2);
  std::vector<std::string> news;
  for (int i = 0; i < StragglerWatch::kIterations * StragglerWatch::kInARow; ++i) {
    for (int rank = 0; rank < 2; ++rank) {
      wire::Progress progress;
      progress.set_rank(rank);
      progress.set_iteration(i);
      progress.set_iteration_seconds(0.75);
      progress.set_data_seconds(rank == 1 ? 0.5 : 0);
      progress.set_exposed_seconds(rank == 1 ? 0 : 0.5);
      for (std::string& sentence : report.OnPace(progress)) news.push_back(std::move(sentence));
    }
  }
  ASSERT_EQ(news.size(), 1u);
  EXPECT_THAT(news[0], HasSubstr("worker 1 is slow: computing and waiting for data take it 3.0 "
                                 "times as long as the others (750.0 ms an iteration, theirs "
                                 "250.0 ms), most of it in waiting for data"));
  const auto summary = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_EQ(summary["stragglers"], nlohmann::json::parse(R"([{"worker": 1, "part": "disk",
      "ratio": 3.0, "from": 39, "until": null}])"));
}

TEST(JobReportTest, BucketsAreMeasuredAndLayersGetTheirShare) {
  JobReport report(2);
  report.OnPlan(TwoBuckets(true));
  report.OnFinished(Report(0, 0.1));
  report.OnFinished(Report(1, 0.3));
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  ASSERT_EQ(json["buckets"].size(), 2u);
  const auto& bucket = json["buckets"][0];
  EXPECT_EQ(bucket["name"], "layer3..layer7");
  EXPECT_EQ(bucket["layers"], (std::vector<std::string>{"layer3", "layer7"}));
  EXPECT_EQ(bucket["scheme"], "ring");
  EXPECT_EQ(bucket["codec"], "fp32");
  EXPECT_EQ(bucket["parameters"], 10);
  EXPECT_EQ(bucket["bytes_sent"], 320);
  EXPECT_EQ(bucket["bytes_received"], 322);
  EXPECT_DOUBLE_EQ(bucket["predicted_ms"], 10);
  EXPECT_NEAR(bucket["measured_ms"], 20, 1e-9);
  ASSERT_EQ(json["layers"].size(), 3u);
  EXPECT_EQ(json["layers"][0]["bytes_sent"], 96);
  EXPECT_EQ(json["layers"][1]["bytes_sent"], 224);
  EXPECT_EQ(json["layers"][0]["bytes_received"].get<int>() +
                json["layers"][1]["bytes_received"].get<int>(),
            322);
  EXPECT_EQ(json["layers"][2]["bytes_sent"], 800);
  EXPECT_EQ(json["layers"][2]["scheme"], "PS");
  EXPECT_NEAR(json["iteration_ms"], 110, 1e-9);
  EXPECT_EQ(json["predicted_iteration_ms"], 100);
}

TEST(JobReportTest, AfterASwitchTheNewPlansIterationsAreCompared) {
  JobReport report(1);
  wire::PlanAndModel first = TwoBuckets(true);
  first.mutable_plan()->set_workers(1);
  first.mutable_plan()->set_start_iteration(40);
  report.OnPlan(first);
  for (int64_t iteration = 40; iteration < 50; ++iteration) {
    if (iteration == 44) {
      wire::PlanAndModel next = TwoBuckets(true);
      next.mutable_plan()->set_number(1);
      next.mutable_plan()->set_workers(1);
      next.mutable_plan()->set_start_iteration(45);
      report.OnPlan(next);
    }
    wire::Progress progress;
    progress.set_iteration(iteration);
    progress.set_total_iterations(50);
    // Under the old plan; the new one's first; then its own, with a test phase.
    progress.set_iteration_seconds(iteration < 45 ? 0.4 : iteration == 45 ? 3 : 0.105);
    if (iteration == 48) progress.set_iteration_seconds(9);
    report.OnProgress(progress, Time());
  }
  wire::WorkerReport finished = Report(0, 0.1);
  finished.set_iterations(10);
  finished.set_training_seconds(14);
  report.OnFinished(finished);
  EXPECT_THAT(report.Closing(),
              testing::HasSubstr("iteration: predicted 100.00 ms, measured 105.00 ms (+5%) since "
                                 "the plan of iteration 45"));
  const auto summary = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_EQ(summary["first_iteration"], 40);
  EXPECT_EQ(summary["tenures"].dump(), R"([{"iteration":40,"workers":1}])");
}

// The same buckets, as after the loss of a worker.
wire::PlanAndModel TakenUpAgain(int number, int64_t start) {
  wire::PlanAndModel plan = TwoBuckets(false);
  plan.mutable_plan()->set_number(number);
  plan.mutable_plan()->set_start_iteration(start);
  return plan;
}

TEST(JobReportTest, TrafficIsOfAllPlansWithTheLastOnesBuckets) {
  JobReport report(2);
  wire::PlanAndModel other = TakenUpAgain(1, 5);
  other.mutable_plan()->set_layout(1);
  for (const wire::PlanAndModel& plan : {TakenUpAgain(0, 0), other, TakenUpAgain(2, 9)}) {
    report.OnPlan(plan);
  }
  wire::WorkerReport first = Report(0, 0.1);
  for (const int plan : {1, 2}) {
    const wire::WorkerReport more = Report(0, plan == 1 ? 0.9 : 0.3);
    for (wire::BucketTraffic bucket : more.buckets()) {
      bucket.set_plan(plan);
      *first.add_buckets() = bucket;
    }
  }
  report.OnFinished(first);
  wire::WorkerReport replacement = Report(1, 0.4);
  for (wire::BucketTraffic& bucket : *replacement.mutable_buckets()) bucket.set_plan(2);
  report.OnFinished(replacement);
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_EQ(json["buckets"][0]["bytes_sent"], 3 * 160);
  EXPECT_EQ(json["buckets"][1]["bytes_received"], 3 * 401);
  EXPECT_NEAR(json["buckets"][0]["measured_ms"], 30, 1e-9) << "the mean of 20 ms and 40 ms";
}

TEST(JobReportTest, PredictionsOfAnEarlierPlanLeaveTheLastOneInForce) {
  std::vector<wire::JournalRecord> journal;
  JobReport report(2, [&journal](const wire::JournalRecord& told) { journal.push_back(told); });
  report.OnPlan(TakenUpAgain(0, 0));
  report.OnPlan(TakenUpAgain(1, 15));
  report.OnRecalibration(TwoBuckets(true).plan());
  ASSERT_EQ(journal.size(), 1u);
  const Plan& plan = journal[0].recalibrated();
  EXPECT_EQ(plan.number(), 1);
  EXPECT_EQ(plan.start_iteration(), 15);
  EXPECT_EQ(plan.iteration_ms(), 100);
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_EQ(json["predicted_iteration_ms"], 100);
  EXPECT_EQ(json["buckets"][0]["predicted_ms"], 10);
  // They may be written down behind a plan that they are not for.
  wire::JournalRecord late;
  *late.mutable_recalibrated() = TwoBuckets(true).plan();
  late.mutable_recalibrated()->set_layout(7);
  late.mutable_recalibrated()->set_iteration_ms(5);
  report.Restore(late);
  EXPECT_EQ(nlohmann::json::parse(report.Json("job", {}))["predicted_iteration_ms"], 100);
}

void AddPeer(Role role, int rank, int64_t sent, int64_t received, wire::WorkerReport& report) {
  wire::PeerTraffic& peer = *report.add_peers();
  peer.set_role(static_cast<uint32_t>(role));
  peer.set_rank(rank);
  peer.set_bytes_sent(sent);
  peer.set_bytes_received(received);
}

TEST(JobReportTest, BytesOfWorkersAndServers) {
  JobReport report(2);
  wire::PlanAndModel plan = TwoBuckets(false);
  plan.mutable_plan()->set_servers(3);
  report.OnPlan(plan);
  wire::WorkerReport first = Report(0, 0.1);
  AddPeer(Role::kServer, 0, 100, 200, first);
  AddPeer(Role::kServer, 1, 1000, 2000, first);
  AddPeer(Role::kWorker, 1, 7, 9, first);
  AddPeer(Role::kServer, 3, 5, 5, first);  // there is none
  report.OnFinished(first);
  wire::WorkerReport second = Report(1, 0.1);
  AddPeer(Role::kWorker, 0, 9, 7, second);
  AddPeer(Role::kServer, 1, 30, 40, second);
  AddPeer(Role::kServer, 0, 10, 20, second);
  report.OnFinished(second);
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_EQ(json["workers"][0]["bytes_sent"], 1112);
  EXPECT_EQ(json["workers"][0]["bytes_received"], 2214);
  EXPECT_EQ(json["workers"][0]["bytes_to_own_server"], 100);
  EXPECT_EQ(json["workers"][0]["bytes_from_own_server"], 200);
  EXPECT_EQ(json["workers"][1]["bytes_to_own_server"], 30);
  ASSERT_EQ(json["servers"].size(), 3u);
  EXPECT_EQ(json["servers"][0]["bytes_sent"], 220);
  EXPECT_EQ(json["servers"][0]["bytes_received"], 110);
  EXPECT_EQ(json["servers"][1]["bytes_sent"], 2040);
  EXPECT_EQ(json["servers"][2]["bytes_received"], 0);
}

TEST(JobReportTest, IterationsAreMeansOverTheWorkers) {
  JobReport report(2);
  for (const auto& [rank, iteration, seconds, exposed] : {std::tuple{0, 0, 0.1, 0.01},
                                                          {0, 1, 0.2, 0.02},
                                                          {1, 0, 0.3, 0.03},
                                                          {1, 1, 0.6, 0.06},
                                                          {0, 2, 1.0, 0.5}}) {
    wire::Progress progress;
    progress.set_rank(rank);
    progress.set_iteration(iteration);
    progress.set_iteration_seconds(seconds);
    progress.set_exposed_seconds(exposed);
    report.OnProgress(progress, {});
  }
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  ASSERT_EQ(json["duration_ms"].size(), 2u) << "not all workers have done the third";
  EXPECT_NEAR(json["duration_ms"][0], 200, 1e-9);
  EXPECT_NEAR(json["duration_ms"][1], 400, 1e-9);
  EXPECT_NEAR(json["exposed_ms"][0], 20, 1e-9);
  EXPECT_NEAR(json["exposed_ms"][1], 40, 1e-9);
}

wire::Progress ProgressOf(int rank, int64_t iteration, float loss) {
  wire::Progress progress;
  progress.set_rank(rank);
  progress.set_iteration(iteration);
  progress.set_loss(loss);
  return progress;
}

TEST(JobReportTest, OnlyALossThatAWorkerTellsIsShown) {
  JobReport report(2);
  const auto line_of = [&](const wire::Progress& first, const wire::Progress& second) {
    report.OnProgress(first, {});
    return report.OnProgress(second, Seconds(10 + static_cast<double>(first.iteration())))
        .value_or("nothing");
  };
  wire::Progress silent = ProgressOf(0, 0, 0);
  silent.clear_loss();
  silent.set_images(8);
  silent.set_iteration_seconds(1);
  wire::Progress other = silent;
  other.set_rank(1);
  EXPECT_EQ(line_of(silent, other), "nothing") << "the first interval has only begun";
  for (wire::Progress* progress : {&silent, &other}) progress->set_iteration(1);
  EXPECT_THAT(line_of(silent, other), testing::MatchesRegex("iteration 2  [0-9]+ images/s .*"));
  silent.set_iteration(2);
  EXPECT_THAT(line_of(silent, ProgressOf(1, 2, 0.5F)), HasSubstr("iteration 3  loss 0.5000  "));
  const auto losses = nlohmann::json::parse(report.Json("job", {}))["loss"];
  EXPECT_EQ(losses.dump(), "[null,null,0.5]");
}

TEST(JobReportTest, OnlyARateThatWorkersTellIsShown) {
  JobReport report(1);
  report.OnProgress(ProgressOf(0, 0, 1), {});
  EXPECT_EQ(report.OnProgress(ProgressOf(0, 1, 1), Seconds(10)).value_or(""),
            "iteration 2  loss 1.0000  communication not hidden 0%");
  wire::WorkerReport finished = Report(0, 0.1);
  report.OnFinished(finished);
  EXPECT_THAT(report.Closing(), StartsWith("20 iterations, communication not hidden"));
  EXPECT_TRUE(nlohmann::json::parse(report.Json("job", {}))["images_per_second"].is_null());
  finished.set_training_seconds(2);
  finished.set_images(640);
  report.OnFinished(finished);
  EXPECT_THAT(report.Closing(), StartsWith("20 iterations, 320 images/s, communication"));
  EXPECT_EQ(nlohmann::json::parse(report.Json("job", {}))["images_per_second"], 320);
  finished.set_images(1);
  report.OnFinished(finished);
  EXPECT_THAT(report.Closing(), StartsWith("20 iterations, 0.5 images/s, communication"));
}

TEST(JobReportTest, ALongTrainingsSummaryStaysSmall) {
  constexpr auto kMost = static_cast<int64_t>(IterationMeans::kMostPlaces);
  JobReport report(1);
  for (const int64_t number : {int64_t{0}, kMost - 1, kMost}) {
    wire::JournalRecord record;
    record.mutable_iteration()->set_number(number);
    record.mutable_iteration()->set_loss(3);
    report.Restore(record);
  }
  wire::Progress last = ProgressOf(0, kMost + 1, 1);
  last.set_total_iterations(kMost + 2);
  EXPECT_THAT(report.OnProgress(last, {}).value_or(""), HasSubstr("  loss 1.0000  "))
      << "that of the line's iteration, and no mean";
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_EQ(json["iterations"], kMost + 2);
  EXPECT_EQ(json["stride"], 2);
  for (const char* list : {"loss", "duration_ms", "exposed_ms", "images"}) {
    ASSERT_EQ(json[list].size(), kMost / 2 + 1) << list;
  }
  EXPECT_EQ(json["loss"].front(), 3);
  EXPECT_EQ(json["loss"].back(), 2);
}

// What a report tells its journal, for another one.
class RestoredReportTest : public testing::Test {
 protected:
  void Restore() {
    for (const wire::JournalRecord& record : journal_) second_.Restore(record);
  }
  std::vector<double> Losses() {
    return nlohmann::json::parse(second_.Json("job", {}))["loss"].get<std::vector<double>>();
  }

  std::vector<wire::JournalRecord> journal_;
  JobReport first_{2, [this](const wire::JournalRecord& told) { journal_.push_back(told); }};
  JobReport second_{2};
};

TEST_F(RestoredReportTest, IterationsAreThoseOfBothSchedulers) {
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    first_.OnProgress(ProgressOf(0, iteration, 1), {});
    // Of the last one the first scheduler has heard by one worker only.
    if (iteration < 2) first_.OnProgress(ProgressOf(1, iteration, 3), {});
  }
  Restore();
  // Training went on; then the workers say again what may have been lost.
  for (const int rank : {0, 1}) second_.OnProgress(ProgressOf(rank, 3, 8), {});
  EXPECT_EQ(nlohmann::json::parse(second_.Json("job", {}))["loss"][2], nullptr);
  for (const int rank : {0, 1}) {
    for (int64_t iteration = 1; iteration < 4; ++iteration) {
      second_.OnProgress(ProgressOf(rank, iteration, 8), {});
    }
  }
  EXPECT_THAT(Losses(), testing::ElementsAre(2, 2, 8, 8));
}

TEST_F(RestoredReportTest, WhatADeadWorkerHasNotSaidIsTheOthersMean) {
  for (const int64_t iteration : {0, 1, 2}) second_.OnProgress(ProgressOf(0, iteration, 5), {});
  wire::Recovered recovered;
  recovered.set_iteration(2);
  second_.OnRecovered(recovered);
  for (const int rank : {0, 1}) second_.OnProgress(ProgressOf(rank, 2, 7), {});
  EXPECT_THAT(Losses(), testing::ElementsAre(5, 5, 7));
}

TEST_F(RestoredReportTest, RecoveriesAndReportsAreTheFirsts) {
  first_.OnProgress(ProgressOf(0, 0, 1), {});
  first_.OnProgress(ProgressOf(1, 0, 1), {});
  journal_.emplace_back().mutable_term()->set_number(0);
  wire::Recovered& recovered = *journal_.emplace_back().mutable_start()->mutable_recovered();
  recovered.set_iteration(1);
  recovered.set_cause("a test");
  first_.OnFinished(Report(0, 0.1));
  Restore();
  second_.OnFinished(Report(1, 0.1));
  const auto json = nlohmann::json::parse(second_.Json("job", {}));
  EXPECT_EQ(json["recoveries"].size(), 1u);
  EXPECT_EQ(json["scheduler_restarts"], 1);
  EXPECT_EQ(json["workers"].size(), 2u);
  EXPECT_THAT(Losses(), testing::ElementsAre(1));
}

TEST_F(RestoredReportTest, TheNextSchedulersSummaryIsTheFirsts) {
  std::mt19937_64 random(5);
  wire::LinkReport links;
  links.set_rank(1);
  links.add_links()->set_goodput_bytes_per_second(1e6);
  first_.OnLinks(links);
  *journal_.emplace_back().mutable_plan() = TwoBuckets(false);
  first_.OnPlan(TwoBuckets(false));
  first_.OnRecalibration(TwoBuckets(true).plan());
  double slowness = 1;
  for (int64_t iteration = 0; iteration < 1000; ++iteration) {
    if (iteration % 150 == 0) slowness = 1 + static_cast<double>(random() % 3);
    for (const int rank : {0, 1}) {
      wire::Progress progress = ProgressOf(rank, iteration, static_cast<float>(random() % 10));
      progress.set_iteration_seconds(rank == 0 ? 0.1 : 0.1 * slowness);
      first_.OnProgress(progress, {});
      first_.OnPace(progress);
    }
  }
  for (const int rank : {0, 1}) first_.OnFinished(Report(rank, 0.1));
  Restore();
  const std::string summary = first_.Json("job", {});
  EXPECT_GE(nlohmann::json::parse(summary)["stragglers"].size(), 2u);
  EXPECT_EQ(second_.Json("job", {}), summary);
}

TEST_F(RestoredReportTest, AnIterationThatNobodyCanHaveReachedIsPassedOver) {
  for (const int rank : {0, 1}) {
    second_.OnProgress(ProgressOf(rank, 0, 1), {});
    second_.OnProgress(ProgressOf(rank, int64_t{1} << 60, 1), {});
    second_.OnProgress(ProgressOf(rank, -1, 1), {});
  }
  EXPECT_THAT(Losses(), testing::ElementsAre(1));
}

TEST(JobReportTest, ClosingComparesPredictionAndMeasurement) {
  JobReport report(2);
  report.OnPlan(TwoBuckets(true));
  report.OnFinished(Report(0, 0.1));
  report.OnFinished(Report(1, 0.3));
  const std::string closing = report.Closing();
  EXPECT_THAT(closing, HasSubstr("iteration: predicted 100.00 ms, measured 110.00 ms (+10%)"));
  EXPECT_THAT(closing, HasSubstr("bucket layer5 (PS): predicted 10.00 ms, measured 20.00 ms"));
}

TEST(JobReportTest, WithoutPredictionThereIsNothingToCompare) {
  JobReport report(2);
  report.OnPlan(TwoBuckets(false));
  report.OnFinished(Report(0, 0.1));
  EXPECT_THAT(report.Closing(), Not(HasSubstr("predicted")));
  EXPECT_THAT(report.PlanTable(), Not(HasSubstr("predicted")));
  const auto json = nlohmann::json::parse(report.Json("job", {}));
  EXPECT_TRUE(json["buckets"][0]["predicted_ms"].is_null());
  EXPECT_FALSE(json.contains("predicted_iteration_ms"));
}

}  // namespace
}  // namespace poseidon
