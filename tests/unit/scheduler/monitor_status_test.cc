// What a monitor makes of a job: its status, as JSON and as metrics, and who is late.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "core/error.h"
#include "scheduler/monitor/history.h"
#include "scheduler/monitor/job_status.h"
#include "scheduler/monitor/metrics_text.h"
#include "scheduler/monitor/node_state.h"
#include "scheduler/monitor/page.h"
#include "scheduler/monitor/status_json.h"
#include "scheduler/monitor/summary_status.h"
#include "scheduler/report/job_report.h"
#include "tests/unit/scheduler/monitor_status_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(HistoryTest, KeepsBoundedMeansOfAllIterations) {
  History history;
  constexpr int64_t kIterations = 100000;
  for (int64_t i = 0; i < kIterations; ++i) history.Add(Iteration(i, 1, 2, 6));
  EXPECT_LE(history.points().size(), History::kMostPoints);
  EXPECT_GE(history.points().size(), History::kMostPoints / 2);
  int64_t next = 0;
  for (const History::Point& point : history.points()) {
    EXPECT_EQ(point.first, next);
    next += point.iterations;
    EXPECT_EQ(point.loss(), 1);
    EXPECT_EQ(point.images_per_second(), 3000);
  }
  EXPECT_EQ(next, kIterations);
}

TEST(HistoryTest, GoesBackWithTheJob) {
  History history;
  for (int64_t i = 0; i < 10; ++i) history.Add(Iteration(i, 1, 2, 6));
  history.CutFrom(6);
  history.Add(Iteration(6, 5, 2, 6));
  ASSERT_EQ(history.points().size(), 7);
  EXPECT_EQ(history.points().back().loss(), 5);
  history.Add(Iteration(3, 9, 2, 6));  // late
  EXPECT_EQ(history.points().size(), 7);
}

TEST(HistoryTest, WhatNobodyToldIsNotANumber) {
  History history;
  history.Add(Iteration(0, NAN, 2, 0));
  EXPECT_TRUE(std::isnan(history.points()[0].loss()));
  EXPECT_TRUE(std::isnan(history.points()[0].images_per_second()));
  EXPECT_EQ(history.points()[0].duration_ms(), 2);
}

TEST_F(MonitorStatusTest, HasAllKeysFromTheStart) {
  const nlohmann::ordered_json json = Json(103);
  EXPECT_EQ(json["job"], "digits");
  EXPECT_EQ(json["phase"], "gathering");
  EXPECT_EQ(json["elapsed_seconds"], 3);
  for (const char* unknown : {"iterations", "loss", "images_per_second", "iteration_ms",
                              "exposed_ms", "predicted_iteration_ms", "seconds_since_progress",
                              "seconds_left", "test", "timeline", "end"}) {
    EXPECT_TRUE(json.at(unknown).is_null()) << unknown;
  }
  EXPECT_EQ(json["nodes"].size(), 3);
  for (const auto& node : json["nodes"]) EXPECT_EQ(node["state"], "joining");
  EXPECT_TRUE(json["buckets"].empty());
}

TEST_F(MonitorStatusTest, ShowsATraining) {
  Join();
  Plan();
  Enter("training", 105);
  for (int64_t i = 0; i < 10; ++i) {
    for (int rank = 0; rank < 2; ++rank) tracker_.OnProgress(ProgressOf(rank, i), Seconds(106));
    tracker_.OnIteration(Iteration(i, 0.5, 100, 16), Seconds(106));
  }
  TellTimeline(1, 20);
  TellTimeline(0, 10);
  const nlohmann::ordered_json json = Json(110);
  EXPECT_EQ(json["iteration"], 10);
  EXPECT_EQ(json["iterations"], 50);
  EXPECT_EQ(json["loss"], 0.5);
  EXPECT_DOUBLE_EQ(json["images_per_second"], 160);
  EXPECT_DOUBLE_EQ(json["iteration_ms"], 100);
  EXPECT_DOUBLE_EQ(json["exposed_ms"], 25);
  EXPECT_DOUBLE_EQ(json["seconds_left"], 4);
  EXPECT_EQ(json["seconds_since_progress"], 4);
  EXPECT_EQ(json["nodes"][1]["role"], "worker");
  EXPECT_EQ(json["nodes"][1]["host"], "host0");
  EXPECT_EQ(json["nodes"][1]["state"], "training");
  EXPECT_EQ(json["buckets"][0]["scheme"], "ring");
  EXPECT_EQ(json["buckets"][0]["bytes"], 12);
  EXPECT_EQ(json["buckets"][0]["predicted_ms"], 12.5);
  EXPECT_TRUE(json["buckets"][1]["predicted_ms"].is_null());
  EXPECT_DOUBLE_EQ(json["buckets"][0]["measured_ms"], 15);  // the mean over the workers
  EXPECT_EQ(json["timeline"]["worker"], 0);
  EXPECT_EQ(json["timeline"]["waits"][0]["layer"], "layer7");
  EXPECT_EQ(json["history"]["loss"].size(), 10);
}

TEST_F(MonitorStatusTest, OfWorkersThatDoNotWaitForEachOtherTheRatesAddUp) {
  Plan();
  for (int64_t i = 0; i < 10; ++i) {
    wire::IterationRecord iteration = Iteration(i, 0.5, 250, 16);
    iteration.set_together_ms(160);
    iteration.set_slowest_ms(400);
    tracker_.OnIteration(iteration, Seconds(106));
  }
  const nlohmann::ordered_json json = Json(110);
  EXPECT_DOUBLE_EQ(json["images_per_second"], 100);
  EXPECT_DOUBLE_EQ(json["history"]["images_per_second"][0], 100);
  EXPECT_DOUBLE_EQ(json["iteration_ms"], 250);
  EXPECT_DOUBLE_EQ(json["seconds_left"], 16) << "40 iterations of the slower one";
}

// A peer may say anything.
TEST_F(MonitorStatusTest, ATimelineOfAnotherPlanIsLeftOut) {
  Join();
  Plan();
  wire::Progress progress = ProgressOf(0, 5);
  progress.mutable_timeline()->add_buckets();
  tracker_.OnProgress(progress, Seconds(110));
  EXPECT_TRUE(Json(110)["timeline"].is_null());
  for (int b = 0; b < 1; ++b) progress.mutable_timeline()->add_buckets();
  progress.mutable_timeline()->add_waits()->set_layer(99);
  progress.set_iteration(6);
  tracker_.OnProgress(progress, Seconds(110));
  EXPECT_TRUE(Json(110)["timeline"]["waits"].empty());
}

// It may have been computed for a plan that has been taken up again since.
TEST_F(MonitorStatusTest, BetterPredictionsLeaveThePlanInForce) {
  Plan();
  wire::PlanAndModel plan = *tracker_.status(Seconds(1)).plan;
  plan.mutable_plan()->set_iteration_ms(40);
  const poseidon::Plan better = plan.plan();
  plan.mutable_plan()->set_number(1);
  tracker_.OnPlan(plan);
  tracker_.OnRecalibration(better);
  EXPECT_EQ(tracker_.status(Seconds(1)).plan->plan().number(), 1);
  EXPECT_EQ(tracker_.status(Seconds(1)).plan->plan().iteration_ms(), 40);
}

TEST_F(MonitorStatusTest, NamesWhoIsLateAndWhoWaits) {
  Join();
  Plan();
  Enter("training", 105);
  tracker_.OnProgress(ProgressOf(0, 6), Seconds(110));
  tracker_.OnProgress(ProgressOf(1, 5), Seconds(110));
  EXPECT_THAT(States(111), ElementsAre("serving", "training", "training"));
  const auto states = NodeStates(tracker_.status(Seconds(120)));
  EXPECT_EQ(states[1].state, "waiting");
  EXPECT_EQ(states[1].waits_for, "worker 1, iteration 6");
  EXPECT_EQ(states[2].state, "late");
  EXPECT_EQ(states[2].lag, 1);
  EXPECT_EQ(states[2].silent_seconds, 10);
}

// A worker that is stopped between telling of an iteration and the end of its exchange.
TEST_F(MonitorStatusTest, NamesWhoseHeartbeatIsOverdueWhereAllAreEven) {
  Join();
  Plan();
  Enter("training", 105);
  for (const int rank : {0, 1}) tracker_.OnProgress(ProgressOf(rank, 5), Seconds(110));
  EXPECT_THAT(States(120), ElementsAre("serving", "training", "training"));
  wire::Silent overdue;
  *overdue.add_nodes() = Node(Role::kWorker, 1);
  tracker_.OnOverdue(overdue);
  EXPECT_THAT(States(120), ElementsAre("serving", "waiting", "late"));
  EXPECT_EQ(NodeStates(tracker_.status(Seconds(120)))[1].waits_for, "worker 1, iteration 6");
  *overdue.add_nodes() = Node(Role::kServer, 0);
  tracker_.OnOverdue(overdue);
  EXPECT_THAT(States(120), ElementsAre("late", "waiting", "late"));
  tracker_.OnOverdue({});
  EXPECT_THAT(States(120), ElementsAre("serving", "training", "training"));
}

TEST_F(MonitorStatusTest, NamesWhoIsLostAndWhoIsAwaited) {
  Join();
  Plan();
  Enter("training", 105);
  wire::JobPhase holding;
  holding.set_phase("holding");
  *holding.add_lost() = Node(Role::kWorker, 1);
  *holding.add_missing() = Node(Role::kWorker, 0);
  tracker_.OnPhase(holding, Seconds(106));
  EXPECT_THAT(States(107), ElementsAre("ready", "awaited", "lost"));
  Join();
  Enter("training", 108);
  wire::Recovered recovered;
  recovered.set_iteration(3);
  tracker_.OnRecovered(recovered);
  EXPECT_THAT(States(109), ElementsAre("serving", "training", "training"));
  EXPECT_EQ(Json(109)["recovery_count"], 1);
}

TEST_F(MonitorStatusTest, HasTheSlowestLinkOfAWorker) {
  Plan();
  EXPECT_TRUE(Json(110)["nodes"].back()["link"].is_null());
  wire::LinkReport report;
  report.set_rank(1);
  const double of_links[][2] = {{0.0002, 2e9}, {0.0005, 1.25e8}, {0.0001, 3e9}};
  for (const auto& [latency, goodput] : of_links) {
    wire::LinkMeasurement* const link = report.add_links();
    link->set_latency_seconds(latency);
    link->set_goodput_bytes_per_second(goodput);
  }
  tracker_.OnLinks(report);
  const auto nodes = Json(110)["nodes"];
  EXPECT_EQ(nodes.back()["link"],
            (nlohmann::ordered_json{{"latency_ms", 0.5}, {"goodput_bytes_per_second", 1.25e8}}));
  EXPECT_TRUE(nodes[1]["link"].is_null()) << "worker 0 has measured none";
}

TEST_F(MonitorStatusTest, NamesWhoIsSlowUntilItHasHealed) {
  Plan();
  const auto slow = [this] { return Json(110)["nodes"][1]["slow"]; };
  EXPECT_TRUE(slow().is_null());
  Straggler straggler{1, SlowPart::kData, 2.5, 40, std::nullopt};
  tracker_.OnStragglers({{0, SlowPart::kLink, 1.3, 0, 20}, straggler});
  EXPECT_TRUE(slow().is_null());  // worker 0 has healed
  const auto nodes = Json(110)["nodes"];
  EXPECT_EQ(nodes.back()["slow"], (nlohmann::ordered_json{{"part", "disk"}, {"ratio", 2.5}}));
  straggler.until = 80;
  tracker_.OnStragglers({straggler});
  EXPECT_TRUE(Json(110)["nodes"].back()["slow"].is_null());
}

TEST_F(MonitorStatusTest, EndsWithWhatTheJobEndedWith) {
  Join();
  Enter("training", 105);
  tracker_.OnEnd([] {
    wire::End end;
    end.set_exit_code(3);
    end.set_reason("worker 1 was killed");
    return end;
  }());
  EXPECT_EQ(Json(110)["phase"], "ended");
  EXPECT_EQ(Json(110)["end"]["exit_code"], 3);
  EXPECT_THAT(States(110), ElementsAre("ended", "ended", "ended"));
}

TEST_F(MonitorStatusTest, NoticesAreBounded) {
  for (int i = 0; i < 1000; ++i) {
    wire::Notice notice;
    notice.set_text(std::to_string(i));
    tracker_.OnNotice(notice);
  }
  EXPECT_EQ(Json(110)["notices"].size(), 50);
  EXPECT_EQ(Json(110)["notices"].back()["text"], "999");
}

// The grammar of the text format: each line is a comment or a sample, a family's samples follow its
// head, and no sample comes twice.
TEST_F(MonitorStatusTest, MetricsAreWellFormed) {
  Join();
  Plan("a \"quoted\"\\\nname\xff");
  Enter("training", 105);
  for (int rank = 0; rank < 2; ++rank) tracker_.OnProgress(ProgressOf(rank, 0), Seconds(106));
  TellTimeline(0, 10);
  const std::string text = MetricsText(tracker_.status(Seconds(110)));
  const std::regex sample(R"(([a-z_]+)(\{([a-z]+="([^"\\]|\\["\\n])*",?)+\})? (-?[0-9.e+-]+))");
  std::set<std::string> samples;
  std::set<std::string> families;
  std::string family;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::smatch parts;
    if (line.starts_with("# HELP ")) {
      family = line.substr(7, line.find(' ', 7) - 7);
      EXPECT_TRUE(families.insert(family).second) << line;
    } else if (!line.starts_with("# TYPE " + family + " ")) {
      ASSERT_TRUE(std::regex_match(line, parts, sample)) << line;
      EXPECT_EQ(parts[1], family);
      EXPECT_TRUE(samples.insert(line.substr(0, line.rfind(' '))).second) << line;
      if (line.find("} ") == std::string::npos) continue;
    }
  }
  EXPECT_THAT(text, HasSubstr("\nposeidon_worker_images_total{rank=\"1\"} 8\n"));
  EXPECT_THAT(text, HasSubstr("poseidon_bucket_exchange_predicted_seconds{index=\"0\""));
  EXPECT_THAT(text, HasSubstr("} 0.0125\n"));
  // What is not known is left out, and not called NaN.
  EXPECT_THAT(text, Not(HasSubstr("poseidon_loss")));
  for (const std::string& name : families) {
    const bool counts = text.find("# TYPE " + name + " counter") != std::string::npos;
    EXPECT_EQ(counts, name.ends_with("_total")) << name;
  }
}

TEST_F(MonitorStatusTest, APageInAFileHoldsTheStatusAndNothingThatEndsItsScript) {
  const std::string page = StoredPage(R"({"job":"</script><b>"})");
  EXPECT_THAT(page, HasSubstr(R"({"job":"\u003c/script>\u003cb>"})"));
  EXPECT_THAT(page, Not(HasSubstr("@STATUS@")));
  EXPECT_THAT(LivePage(), Not(HasSubstr("@ST")));
  // Nothing comes from elsewhere.
  EXPECT_FALSE(std::regex_search(LivePage(), std::regex(R"((src|href)="(?!data:))")));
}

TEST_F(MonitorStatusTest, ASummaryIsAStatusWithTheSameKeys) {
  Plan();
  JobReport report(2);
  wire::PlanAndModel plan = *tracker_.status(Seconds(1)).plan;
  plan.mutable_plan()->set_servers(1);
  plan.mutable_plan()->set_iteration_ms(100);
  plan.mutable_plan()->set_simulated_ms(120);
  tracker_.OnPlan(plan);
  for (LayerSpec& layer : *plan.mutable_model()->mutable_layers()) {
    layer.add_blobs()->add_shape(layer.name() == "layer3" ? 3 : 7);
  }
  report.OnPlan(plan);
  for (int rank = 0; rank < 2; ++rank) {
    report.OnProgress(ProgressOf(rank, 0), Seconds(1));
    wire::WorkerReport worker;
    worker.set_rank(rank);
    worker.set_images(8);
    worker.set_iterations(1);
    report.OnFinished(worker);
  }
  const auto status = StatusOfSummary(report.Json("digits", {}), "summary.json");
  const auto live = Json(110);
  std::vector<std::string> keys;
  std::vector<std::string> live_keys;
  for (const auto& [key, value] : status.items()) keys.push_back(key);
  for (const auto& [key, value] : live.items()) live_keys.push_back(key);
  EXPECT_EQ(keys, live_keys);
  EXPECT_EQ(status["iteration"], 1);
  EXPECT_EQ(status["images"], 16);
  EXPECT_DOUBLE_EQ(status["iteration_ms"], 100);
  EXPECT_EQ(status["nodes"].size(), 3);
  EXPECT_EQ(status["nodes"][1]["state"], "finished");
  EXPECT_EQ(status["buckets"][0]["predicted_ms"], 12.5);
  // As it was tried, before and after the end.
  EXPECT_EQ(status["predicted_iteration_ms"], 120);
  EXPECT_EQ(live["predicted_iteration_ms"], 120);
  for (const std::string bad : {"", "[]", "{}", "{\"job\": 3}", "nothing"}) {
    try {
      StatusOfSummary(bad, "summary.json");
      ADD_FAILURE() << bad;
    } catch (const DataError& error) {
      EXPECT_THAT(error.what(), HasSubstr("summary.json is no summary.json of this version"));
    }
  }
}

TEST_F(MonitorStatusTest, WhatNoWorkerHasComeToTheEndToTellIsNotKnown) {
  Plan();
  JobReport report(2);
  report.OnPlan(*tracker_.status(Seconds(1)).plan);
  for (int rank = 0; rank < 2; ++rank) report.OnProgress(ProgressOf(rank, 0), Seconds(1));
  wire::End end;
  end.set_exit_code(3);
  const std::string summary = report.Json("digits", end);
  const auto keys = nlohmann::json::parse(summary);
  for (const char* key : {"images_per_second", "communication_not_hidden", "iteration_ms"}) {
    EXPECT_TRUE(keys.at(key).is_null()) << key;
  }
  const auto status = StatusOfSummary(summary, "summary.json");
  EXPECT_TRUE(status["images_per_second"].is_null());
  EXPECT_EQ(status["images"], 16);
  EXPECT_DOUBLE_EQ(status["iteration_ms"], 100);
  ASSERT_EQ(status["nodes"].size(), 1);
  EXPECT_EQ(status["nodes"][0]["state"], "ended");
}

TEST_F(MonitorStatusTest, ASummaryOfAJobThatGoesOnFromASnapshotHasTheNumbersOfTheTraining) {
  Plan(200);
  JobReport report(2);
  report.OnPlan(*tracker_.status(Seconds(1)).plan);
  for (int rank = 0; rank < 2; ++rank) {
    for (const int64_t number : {200, 201}) report.OnProgress(ProgressOf(rank, number), Seconds(1));
    wire::WorkerReport worker;
    worker.set_rank(rank);
    worker.set_iterations(2);
    worker.set_test_loss(0.5);
    report.OnFinished(worker);
  }
  const auto status = StatusOfSummary(report.Json("digits", {}), "summary.json");
  EXPECT_EQ(status["iteration"], 202);
  EXPECT_EQ(status["iterations"], 202);
  EXPECT_EQ(status["test"]["iteration"], 202);
  EXPECT_EQ(status["history"]["iteration"].dump(), "[201,202]");
  EXPECT_EQ(status["nodes"].back()["iteration"], 202);
}

// The second has taken a lost one's place.
TEST_F(MonitorStatusTest, ASummarysWorkersAreAsQuickAsTheirOwnIterationsTell) {
  JobReport report(2);
  for (const int64_t iterations : {400, 10}) {
    wire::WorkerReport worker;
    worker.set_rank(iterations == 400 ? 0 : 1);
    worker.set_iterations(iterations);
    worker.set_training_seconds(0.01 * static_cast<double>(iterations));
    report.OnFinished(worker);
  }
  auto summary = nlohmann::json::parse(report.Json("digits", {}));
  summary["iterations"] = 400;
  const auto nodes = StatusOfSummary(summary.dump(), "summary.json")["nodes"];
  ASSERT_EQ(nodes.size(), 2);
  for (const auto& node : nodes) EXPECT_DOUBLE_EQ(node["iteration_ms"], 10);
}

// As a training with a test phase in its last iteration, of which a lost scheduler has taken one
// iteration with it.
TEST_F(MonitorStatusTest, ASummarysIterationTakesAsLongAsTheSummarySays) {
  nlohmann::json summary = nlohmann::json::parse(JobReport(1).Json("digits", {}));
  summary["iterations"] = 4;
  summary["loss"] = {3, nullptr, 2, 1};
  summary["duration_ms"] = {10, nullptr, 10, 40};
  summary["exposed_ms"] = {1, nullptr, 1, 4};
  const auto figures = [&] {
    const auto status = StatusOfSummary(summary.dump(), "summary.json");
    return nlohmann::json{status["iteration_ms"], status["exposed_ms"]};
  };
  EXPECT_EQ(figures().dump(), "[20.0,2.0]") << "of the iterations that are told";
  summary["iteration_ms"] = 0;
  EXPECT_EQ(figures().dump(), "[20.0,2.0]");
  summary["iteration_ms"] = 10.0;
  EXPECT_EQ(figures().dump(), "[10.0,1.0]") << "as its images_per_second, without the test";
  for (const char* list : {"duration_ms", "exposed_ms"}) {
    summary[list] = std::vector<nlohmann::json>(4);
  }
  EXPECT_EQ(figures().dump(), "[10.0,null]");
  summary["iteration_ms"] = nullptr;
  EXPECT_EQ(figures().dump(), "[null,null]");
}

// Of a stopped job it may be of any iteration before the last.
TEST_F(MonitorStatusTest, TheLastTestOfAStoppedJobHasNoIterationInItsSummary) {
  nlohmann::json summary = nlohmann::json::parse(JobReport(1).Json("digits", {}));
  summary["test_loss"] = 0.5;
  summary["exit_code"] = 130;
  const auto test = StatusOfSummary(summary.dump(), "summary.json")["test"];
  EXPECT_TRUE(test["iteration"].is_null()) << test;
  EXPECT_EQ(test["loss"], 0.5);
}

TEST_F(MonitorStatusTest, ASummaryTellsSinceWhenItsSchedulerRan) {
  const JobReport report(1);
  const auto elapsed = [](const std::string& summary) {
    return StatusOfSummary(summary, "summary.json")["elapsed_seconds"];
  };
  EXPECT_EQ(elapsed(report.Json("digits", {}, Seconds(90))), 90);
  auto older = nlohmann::json::parse(report.Json("digits", {}));
  EXPECT_TRUE(older["elapsed_seconds"].is_null());
  older.erase("elapsed_seconds");
  EXPECT_TRUE(elapsed(older.dump()).is_null());
}

// Five iterations of 10 to 50 ms, two a value.
TEST_F(MonitorStatusTest, ASummaryOfMeansIsAStatusOfAllIterations) {
  nlohmann::json summary = nlohmann::json::parse(JobReport(1).Json("long", {}));
  summary["iterations"] = 5;
  summary["stride"] = 2;
  summary["loss"] = {3, nullptr, 1};
  summary["duration_ms"] = {15, 35, 50};
  summary["exposed_ms"] = {1, 2, 3};
  summary["images"] = {30, 70, nullptr};
  const auto status = StatusOfSummary(summary.dump(), "summary.json");
  EXPECT_DOUBLE_EQ(status["iteration_ms"], 30);
  EXPECT_DOUBLE_EQ(status["exposed_ms"], 1.8);
  EXPECT_EQ(status["loss"], 1);
  EXPECT_EQ(status["history"]["iteration"].dump(), "[2,4,5]");
  EXPECT_EQ(status["history"]["stride"], 2);
  EXPECT_EQ(status["images"], 200);
  EXPECT_EQ(status["history"]["images_per_second"].dump(), "[2000.0,2000.0,null]");
  for (const int64_t bad : {int64_t{0}, int64_t{-2}, std::numeric_limits<int64_t>::max()}) {
    summary["stride"] = bad;
    EXPECT_THROW(StatusOfSummary(summary.dump(), "summary.json"), DataError);
  }
}

}  // namespace
}  // namespace poseidon
