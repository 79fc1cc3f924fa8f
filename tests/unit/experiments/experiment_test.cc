// Experiment files, the points that they ask for, and the directory of their results.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/error.h"
#include "experiments/experiment_results.h"
#include "experiments/simulated_point.h"
#include "planner/model_times.h"
#include "planner/policies.h"
#include "proto/text_format.h"
#include "tests/unit/experiments/experiment_fixture.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

TEST_F(ExperimentTest, EveryCombinationIsAPoint) {
  const std::vector<ExperimentPoint> points = Points(kExperiment);
  // 2 systems x 2 x 2, then both nets x 2 numbers of devices.
  ASSERT_EQ(points.size(), 8 + 4);
  std::set<std::string> keys;
  std::set<std::string> described;
  for (const ExperimentPoint& point : points) {
    keys.insert(KeyOf(point, ExperimentMode::kSimulate));
    described.insert(Describe(point));
    EXPECT_EQ(point.job.cluster().servers(), point.job.cluster().workers());
  }
  EXPECT_EQ(keys.size(), points.size());
  EXPECT_EQ(described.size(), points.size());
}

TEST_F(ExperimentTest, APointOfTwoSweepsIsOne) {
  const std::string twice =
      std::string(kExperiment) + "sweep { net: \"other\" system: \"rows\" workers: 4 workers: 2 }";
  EXPECT_EQ(Points(twice).size(), 12 + 1);
}

TEST_F(ExperimentTest, TheNearestSettingCounts) {
  for (const ExperimentPoint& point : Points(kExperiment)) {
    const Network& network = point.job.cluster().network();
    const Communication& communication = point.job.communication();
    if (point.system == "rows") {
      EXPECT_EQ(communication.policy(), Communication::ALL_TORUS);
      EXPECT_EQ(communication.grid(0), 2);
      EXPECT_EQ(communication.grid(1), 2);
      continue;
    }
    const bool calibrated = point.system == "calibrated";
    EXPECT_EQ(network.goodput_share(), calibrated ? 0.5 : 0.9);
    // The list names the point's bandwidth, whatever else does.
    EXPECT_NE(network.bandwidth(), "7Gbps");
    EXPECT_EQ(communication.policy(), Communication::ALL_PS);
    EXPECT_TRUE(communication.wait_for_all());
    EXPECT_EQ(communication.lanes(), 2);
    EXPECT_EQ(communication.kv_pair_bytes(), calibrated ? 400 : 4000);
    EXPECT_EQ(point.job.cluster().flops(), 1e12);
  }
}

TEST_F(ExperimentTest, DevicesHaveBatchesOfTheirOwn) {
  for (const ExperimentPoint& point : Points(kExperiment)) {
    if (point.net != "small") continue;
    const int devices = point.job.cluster().devices_per_worker();
    EXPECT_EQ(point.model.batch(), 4 * devices);
    EXPECT_EQ(point.model.layers(1).inner_product().rows(), 4 * devices);
    EXPECT_EQ(point.model.layers(1).backward_ms(), 2);
  }
}

TEST_F(ExperimentTest, WhateverChangesAResultChangesTheKey) {
  const std::string before = KeyOf(Points(kExperiment)[0], ExperimentMode::kSimulate);
  EXPECT_EQ(before, KeyOf(Points(kExperiment)[0], ExperimentMode::kSimulate));
  EXPECT_NE(before, KeyOf(Points(kExperiment)[0], ExperimentMode::kEmulate));
  const std::pair<const char*, const char*> changes[] = {
      {"parameters: 1000", "parameters: 1001"},
      {"forward_ms: 1", "forward_ms: 1.5"},
      {"batch: 4", "batch: 5"},
      {"goodput_share: 0.9", "goodput_share: 0.8"},
      {"lanes: 2", "lanes: 3"},
      {"flops: 1e12", "flops: 2e12"},
      {"workers: 2", "workers: 3"}};
  for (const auto& [what, by] : changes) {
    EXPECT_NE(before, KeyOf(Points(Replaced(kExperiment, what, by))[0], ExperimentMode::kSimulate))
        << by;
  }
  // What is only said or drawn does not.
  EXPECT_EQ(before, KeyOf(Points(Replaced(kExperiment, "speedup: 3", "speedup: 4"))[0],
                          ExperimentMode::kSimulate));
}

// Where the file says nothing of it a device rebuilds gradients as fast as it trains.
TEST_F(ExperimentTest, ANetMaySayFlops) {
  const ExperimentFile file =
      Read(Replaced(kExperiment, "system: \"rows\" workers: 4",
                    "system: \"rows\" system: \"time\" system: \"own\" workers: 4") +
           std::string("system { name: \"own\" policy: \"TIME\" cluster { flops: 2e12 } }"));
  std::map<std::string, ExperimentModel> models = Models(file.experiment);
  const std::vector<ExperimentPoint> before = PointsOf(file, models);
  models["small"].flops = 3e12;
  const std::vector<ExperimentPoint> points = PointsOf(file, models);
  ASSERT_EQ(points.size(), before.size());
  for (size_t i = 0; i < points.size(); ++i) {
    SCOPED_TRACE(Describe(points[i]));
    const bool of_the_net =
        points[i].net == "small" && (points[i].system == "rows" || points[i].system == "time");
    EXPECT_EQ(points[i].job.cluster().flops(), of_the_net ? 3e12 : before[i].job.cluster().flops());
    // A torus sends no factors, so its results are what they were.
    EXPECT_EQ(
        KeyOf(points[i], ExperimentMode::kSimulate) == KeyOf(before[i], ExperimentMode::kSimulate),
        !of_the_net || points[i].system == "rows");
  }
}

TEST_F(ExperimentTest, PublishedValuesFindTheirPoints) {
  const ExperimentFile file = Read(kExperiment);
  int fitted = 0;
  for (const ExperimentPoint& point : PointsOf(file, Models(file.experiment))) {
    const auto published = PublishedFor(file.experiment, point);
    ASSERT_EQ(published.has_value(), point.net == "small");
    if (!published) continue;
    if (published->fitted) {
      ++fitted;
      EXPECT_EQ(published->speedup, 3);
      EXPECT_EQ(published->source, "a book");
    } else {
      const Cluster& cluster = point.job.cluster();
      EXPECT_EQ(published->speedup, 0.5 * cluster.workers() * cluster.devices_per_worker());
    }
  }
  // Both systems at 10 Gb/s, which is the default of `rows`, too, with 1 and 8 devices.
  EXPECT_EQ(fitted, 4);
}

TEST_F(ExperimentTest, WhatIsKnownOfAConditionIsTheClusters) {
  const std::string experiment =
      "name: \"t\" net { name: \"n\" replay { layers { name: \"a\" parameters: 7 } } }"
      " sweep { system: \"wfbp\" workers: 2 condition { name: \"c\" deviation { worker: 1"
      " compute_factor: 2 } ";
  const std::vector<ExperimentPoint> unknown = Points(experiment + "} }");
  ASSERT_EQ(unknown.size(), 1U);
  EXPECT_EQ(unknown[0].condition.deviation_size(), 1);
  EXPECT_EQ(unknown[0].job.cluster().deviation_size(), 0);
  const std::vector<ExperimentPoint> known = Points(experiment + "known: true } }");
  ASSERT_EQ(known.size(), 1U);
  EXPECT_EQ(known[0].condition.name(), "c");
  EXPECT_EQ(known[0].condition.deviation_size(), 0);
  ASSERT_EQ(known[0].job.cluster().deviation_size(), 1);
  EXPECT_EQ(known[0].job.cluster().deviation(0).compute_factor(), 2);
  EXPECT_NE(KeyOf(known[0], ExperimentMode::kSimulate),
            KeyOf(unknown[0], ExperimentMode::kSimulate));
}

TEST_F(ExperimentTest, BalancedBatchesHelpWhereAWorkerIsSlow) {
  const std::string net =
      "name: \"t\" net { name: \"n\" replay { batch: 32"
      "   layers { name: \"a\" parameters: 7 forward_ms: 20 backward_ms: 40 } } }"
      " system { name: \"parts\" policy: \"WFBP\" batch: BALANCED";
  const std::string sweep =
      " sweep { workers: 4 cluster { disturbance { } } system: \"wfbp\" system: \"parts\" ";
  const std::string slow = "deviation { worker: 2 compute_factor: 2 } ";
  const auto milliseconds = [](const std::vector<ExperimentPoint>& points) {
    std::vector<double> of;
    for (const ExperimentPoint& point : points) of.push_back(1e3 * SimulatePoint(point).iteration);
    return of;
  };
  for (const std::string known : {"", "known: true "}) {
    const std::vector<double> of = milliseconds(
        Points(net + " }" + sweep + "condition { name: \"c\" " + slow + known + "} }"));
    ASSERT_EQ(of.size(), 2);
    // The slow worker takes 60 ms twice; the others compute 37 samples, or 36, instead of 32.
    EXPECT_NEAR(of[0], 120, 1) << known;
    EXPECT_NEAR(of[1], 60 * 37 / 32.0, 1) << known;
  }
  const std::vector<double> alike = milliseconds(Points(net + " }" + sweep + "}"));
  ASSERT_EQ(alike.size(), 2);
  EXPECT_NEAR(alike[0], alike[1], 1e-9);
  EXPECT_THAT(Refusal(net + " communication { staleness: 1 } }" + sweep + "}"),
              HasSubstr("with training.batch BALANCED use 0"));
  EXPECT_THAT(Refusal(net + " }" + sweep + "devices_per_worker: 2 }"),
              HasSubstr("start a worker for each device"));
}

TEST_F(ExperimentTest, AListIsReplacedAsAWhole) {
  const std::vector<ExperimentPoint> points = Points(
      "name: \"t\" net { name: \"n\" replay { layers { name: \"a\" parameters: 7 } } }"
      " system { name: \"own\" policy: \"ALL_TORUS\" communication { grid: 4 grid: 1 }"
      "   cluster { network { tier { members: 4 bandwidth: \"1Gbps\" } } } }"
      " sweep { system: \"torus\" system: \"own\" workers: 4 communication { grid: 2 grid: 2 }"
      "   cluster { network { tier { members: 2 bandwidth: \"2Gbps\" } } } }");
  ASSERT_EQ(points.size(), 2);
  for (const ExperimentPoint& point : points) {
    const bool own = point.system == "own";
    ASSERT_EQ(point.job.cluster().network().tier_size(), 1);
    EXPECT_EQ(point.job.cluster().network().tier(0).members(), own ? 4 : 2);
    EXPECT_THAT(point.job.communication().grid(),
                own ? testing::ElementsAre(4, 1) : testing::ElementsAre(2, 2));
  }
}

TEST_F(ExperimentTest, WhatIsTrainedIsPartOfTheKey) {
  const ExperimentFile file = Read(kExperiment);
  std::map<std::string, ExperimentModel> models = Models(file.experiment);
  models["small"].training.emplace().set_solver("/solver");
  models["small"].solver = "max_iter: 100";
  const std::string before = KeyOf(PointsOf(file, models)[0], ExperimentMode::kEmulate);
  EXPECT_EQ(before, KeyOf(PointsOf(file, models)[0], ExperimentMode::kEmulate));
  // Wherever it is, and however the experiment file spells its path.
  models["small"].training->set_solver("/elsewhere/solver");
  EXPECT_EQ(before, KeyOf(PointsOf(file, models)[0], ExperimentMode::kEmulate));
  models["small"].solver = "max_iter: 200";
  EXPECT_NE(before, KeyOf(PointsOf(file, models)[0], ExperimentMode::kEmulate));
}

TEST(ModelTimesTest, RefusesLayersThatTakeLongerThanAnHour) {
  ModelSpec model;
  model.set_batch(1);
  LayerSpec& layer = *model.add_layers();
  layer.set_name("fc");
  layer.set_multiply_adds(1000000);
  EXPECT_NEAR(WithTimes(model, 1e9).layers(0).forward_ms(), 2, 1e-9);
  EXPECT_NEAR(WithImagesPerSecond(model, 0.01).layers(0).backward_ms(), 2e5 / 3, 1e-6);
  for (const double slow : {1e-300, 1e-12}) {
    EXPECT_THROW(WithTimes(model, slow), ConfigError);
    EXPECT_THROW(WithImagesPerSecond(model, slow), ConfigError);
  }
}

PointResult SomeResult(double iteration) {
  PointResult result;
  result.iteration = iteration;
  result.compute = 0.006;
  result.busy = 0.006 / iteration;
  result.bytes_sent = 3000;
  result.bytes_received = 1000;
  result.mean_bytes = 2000;
  result.schemes = "PS 1,000, SFB 1,020";
  return result;
}

TEST_F(ExperimentTest, ResultsAreThereAgainAfterAnInterruption) {
  const Experiment experiment = Read(kExperiment).experiment;
  const std::vector<ExperimentPoint> points = Points(kExperiment);
  {
    ExperimentResults results(Path("out"), experiment, points);
    EXPECT_FALSE(std::filesystem::exists(Path("out"))) << "before something may come of it";
    results.MakeDirectory();
    for (size_t i = 0; i < points.size(); ++i) {
      EXPECT_FALSE(results.Has(i, ExperimentMode::kSimulate));
    }
    results.Put(3, ExperimentMode::kSimulate, SomeResult(0.01));
    PointResult trained = SomeResult(0.02);
    trained.losses = {2.5, 1.25};
    trained.accuracy = 0.75;
    results.Put(3, ExperimentMode::kEmulate, trained);
    results.Put(1, ExperimentMode::kSimulate, SomeResult(0.03));
  }
  ExperimentResults results(Path("out"), experiment, points);
  EXPECT_TRUE(results.Has(1, ExperimentMode::kSimulate));
  EXPECT_FALSE(results.Has(1, ExperimentMode::kEmulate));
  EXPECT_FALSE(results.Has(2, ExperimentMode::kSimulate));
  EXPECT_EQ(results.Get(3, ExperimentMode::kSimulate).iteration, 0.01);
  EXPECT_THAT(results.Get(3, ExperimentMode::kEmulate).losses, testing::ElementsAre(2.5, 1.25));
  EXPECT_EQ(results.Get(3, ExperimentMode::kEmulate).accuracy, 0.75);
  // A file that is cut off does not count.
  std::ofstream(Path("out/points/" + KeyOf(points[1], ExperimentMode::kSimulate) + ".json"))
      << "{\"iteration_sec";
  EXPECT_FALSE(
      ExperimentResults(Path("out"), experiment, points).Has(1, ExperimentMode::kSimulate));
  // Of another experiment with the same points all are there.
  const std::string renamed = Replaced(kExperiment, "speedup: 3", "speedup: 2");
  ExperimentResults other(Path("out"), Read(renamed).experiment, Points(renamed));
  EXPECT_TRUE(other.Has(3, ExperimentMode::kSimulate));
}

// Which can't be seen from the keys of its points.
TEST_F(ExperimentTest, ResultsOfAnotherSlowMotionOrOtherHostsAreNotMixed) {
  const Experiment experiment = Read(kExperiment).experiment;
  const std::vector<ExperimentPoint> points = Points(kExperiment);
  const auto open = [&] {
    ExperimentResults results(Path("out"), experiment, points);
    results.MakeDirectory();
    return results;
  };
  const auto refusal = [&](ExperimentMode mode, const Circumstances& now) {
    return MessageOf<ConfigError>([&] { open().RefuseOthers(mode, now); });
  };
  // As files were before they said it.
  open().Put(0, ExperimentMode::kEmulate, SomeResult(0.01));
  EXPECT_NO_THROW(open().RefuseOthers(ExperimentMode::kEmulate, {"0.1", 1, {}}));
  const Circumstances before = {"0.1", 5, {"node0", "node1 10.0.0.2", "node2"}};
  for (const ExperimentMode mode :
       {ExperimentMode::kSimulate, ExperimentMode::kEmulate, ExperimentMode::kRun}) {
    open().Put(2, mode, SomeResult(0.02), before);
    EXPECT_NO_THROW(open().RefuseOthers(mode, before));
    EXPECT_THAT(open().Versions(mode), testing::ElementsAre(testing::Pair("0.1", 1)));
  }
  EXPECT_EQ(refusal(ExperimentMode::kEmulate, {"0.1", 1, {}}),
            "1 of the points in " + Path("out") +
                " is of --slow_motion=5, not 1; give the same again, or name another --out");
  // Two machines have run the point; those that others need besides are no matter.
  EXPECT_NO_THROW(
      open().RefuseOthers(ExperimentMode::kRun, {"0.2", 1, {"node0", "node1 10.0.0.2", "node9"}}));
  EXPECT_THAT(refusal(ExperimentMode::kRun, {"0.1", 1, {"node0", "node1"}}),
              HasSubstr("is of the hosts node0, node1 10.0.0.2, not node0, node1; give the same"));
  EXPECT_NO_THROW(open().RefuseOthers(ExperimentMode::kSimulate, {"0.2", 1, {}}));
}

// The table, read by the rules of CSV (RFC 4180).
std::vector<std::vector<std::string>> ReadCsv(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::vector<std::string>> rows(1, {""});
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (quoted && i + 1 < text.size() && text[i + 1] == '"') {
        rows.back().back() += text[i++];
      } else {
        quoted = !quoted;
      }
    } else if (text[i] == ',' && !quoted) {
      rows.back().emplace_back();
    } else if (text[i] == '\n' && !quoted) {
      rows.push_back({""});
    } else {
      rows.back().back() += text[i];
    }
  }
  rows.pop_back();
  return rows;
}

TEST_F(ExperimentTest, TheTableSaysWhatWasMeasuredAndPublished) {
  const std::string quoted = Replaced(kExperiment, "a book", "a \\\"book\\\", first edition");
  const std::vector<ExperimentPoint> points = Points(quoted);
  ExperimentResults results(Path("out"), Read(quoted).experiment, points);
  results.MakeDirectory();
  size_t published = 0;
  while (PublishedFor(Read(quoted).experiment, points[published])->fitted == false) ++published;
  results.Put(published, ExperimentMode::kSimulate, SomeResult(0.01));
  const auto rows = ReadCsv(Path("out/results.csv"));
  ASSERT_EQ(rows.size(), 2);
  ASSERT_EQ(rows[0].size(), rows[1].size());
  std::map<std::string, std::string> row;
  for (size_t i = 0; i < rows[0].size(); ++i) row[rows[0][i]] = rows[1][i];
  EXPECT_EQ(row["model"], "small");
  EXPECT_EQ(row["workers"], "4");
  EXPECT_EQ(row["bandwidth_gbps"], "10");
  EXPECT_EQ(row["sweep"], "1");
  EXPECT_EQ(row["mode"], "simulate");
  EXPECT_EQ(row["parameters"], std::to_string(1000 + 50 * 20 + 20));
  EXPECT_EQ(row["goodput_gbps"], "9");
  EXPECT_EQ(row["message_cost_us"], "20");
  EXPECT_EQ(row["flops"], "1e+12");
  EXPECT_EQ(row["reduction_rate"], "4e+09");
  EXPECT_EQ(row["update_rate"], "2e+09");
  EXPECT_EQ(row["iteration_seconds"], "0.01");
  EXPECT_EQ(row["images_per_second"], "1600");  // 4 x 4 in 10 ms
  EXPECT_EQ(row["speedup"], "2.4");
  EXPECT_EQ(row["efficiency"], "0.6");
  EXPECT_EQ(row["bytes_out"], "3000");
  EXPECT_EQ(row["imbalance"], "2");
  EXPECT_EQ(row["predicted_seconds"], "");
  EXPECT_EQ(row["schemes"], "PS 1,000, SFB 1,020");
  EXPECT_EQ(row["published"], "3");
  EXPECT_EQ(row["difference"], "-0.2");
  EXPECT_EQ(row["fitted"], "true");
  EXPECT_EQ(row["source"], "a \"book\", first edition");
  std::ifstream json(Path("out/experiment.json"));
  EXPECT_EQ(nlohmann::json::parse(json)["published"][0]["speedup"], 3);
}

// Some settings are no column of their own.
TEST_F(ExperimentTest, RowsOfAPointSayThatTheyAre) {
  const std::vector<ExperimentPoint> points =
      Points(std::string(kExperiment) +
             "sweep { net: \"small\" system: \"wfbp\" workers: 2 bandwidth: \"1Gbps\""
             " cluster { network { goodput_share: 0.9 } flops: 1e12 }"
             " communication { lanes: 3 kv_pair_bytes: 4000 } }");
  const ExperimentMode modes[] = {ExperimentMode::kSimulate, ExperimentMode::kEmulate};
  ExperimentResults results(Path("out"), Experiment(), {points.front(), points.back()});
  results.MakeDirectory();
  // Last comes first, and yet the table has the experiment's order.
  for (const size_t point : {1, 0}) {
    for (const ExperimentMode mode : modes) results.Put(point, mode, SomeResult(0.01));
  }
  const auto rows = ReadCsv(Path("out/results.csv"));
  ASSERT_EQ(rows.size(), 1 + 4);
  const size_t column = std::find(rows[0].begin(), rows[0].end(), "point") - rows[0].begin();
  ASSERT_LT(column, rows[0].size());
  for (const size_t row : {1, 2, 3, 4}) {
    EXPECT_EQ(rows[row][column],
              KeyOf(row < 3 ? points.front() : points.back(), ExperimentMode::kSimulate));
  }
  EXPECT_NE(rows[1][column], rows[3][column]);
}

// By which figures tell those apart that differ only in what is no column.
TEST_F(ExperimentTest, PointsAreOfTheFirstSweepThatHasThem) {
  const std::string text = Replaced(kExperiment, "sweep {", "sweep { name: \"few lanes\"");
  const std::string again =
      "sweep { net: \"small\" system: \"wfbp\" workers: 2 workers: 3 bandwidth: \"1Gbps\""
      " cluster { network { goodput_share: 0.9 } flops: 1e12 }"
      " communication { lanes: 2 kv_pair_bytes: 4000 } }";
  const std::vector<ExperimentPoint> points = Points(text + again);
  ASSERT_EQ(points.size(), Points(kExperiment).size() + 1);
  EXPECT_EQ(points.front().sweep, "few lanes");
  EXPECT_EQ(points.back().sweep, "3");
  EXPECT_EQ(points.back().job.cluster().workers(), 3);
  // A name changes no result.
  EXPECT_EQ(KeyOf(points.front(), ExperimentMode::kSimulate),
            KeyOf(Points(kExperiment).front(), ExperimentMode::kSimulate));
}

TEST_F(ExperimentTest, PlannedPointsAreThePlannersPrediction) {
  const std::vector<ExperimentPoint> points = Points(Replaced(
      kExperiment, "system: \"rows\" workers: 4", "system: \"time\" workers: 4 plan_only: true"));
  const ExperimentPoint& point = points.back();
  ASSERT_TRUE(point.plan_only);
  const PointResult planned = SimulatePoint(point);
  EXPECT_EQ(planned.iteration, planned.predicted);
  EXPECT_GE(planned.iteration, planned.compute);
  ExperimentPoint simulated = point;
  simulated.plan_only = false;
  EXPECT_NEAR(SimulatePoint(simulated).iteration, planned.iteration, 0.1 * planned.iteration);
  EXPECT_EQ(SimulatePoint(simulated).predicted, planned.predicted);
  // The planner says nothing of the mean machine.
  ExperimentResults results(Path("out"), Experiment(), {point});
  results.MakeDirectory();
  results.Put(0, ExperimentMode::kSimulate, planned);
  const auto rows = ReadCsv(Path("out/results.csv"));
  for (size_t i = 0; i < rows[0].size(); ++i) {
    if (rows[0][i] != "bytes_mean" && rows[0][i] != "imbalance") continue;
    EXPECT_EQ(rows[1][i], "") << rows[0][i];
  }
}

}  // namespace
}  // namespace poseidon
