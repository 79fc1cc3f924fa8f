// Experiments in which nodes fail.
#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "experiments/experiment_file.h"
#include "experiments/experiment_points.h"
#include "experiments/experiment_results.h"
#include "experiments/process_point.h"
#include "experiments/simulated_point.h"
#include "proto/replay_model.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr char kExperiment[] = R"(name: "test"
net { name: "a" replay { layers { name: "a" parameters: 70000 forward_ms: 5 backward_ms: 10 } } }
system { name: "again" policy: "WFBP" recovery: "snapshot:10min" }
sweep {
  system: "wfbp" system: "again"
  workers: 3
  failures { mtbf: "10h" mtbf: "100h" replacement: "30s" losses: 4 snapshot_cost: "5s" }
}
sweep { system: "wfbp" workers: 3 }
)";

class FailuresTest : public testing::Test {
 protected:
  void SetUp() override { FLAGS_minloglevel = google::GLOG_ERROR; }

  ExperimentFile Read(const std::string& text) const {
    return ReadExperiment(directory_.Write("experiment.prototxt", text));
  }

  std::vector<ExperimentPoint> Points(const std::string& text) const {
    const ExperimentFile file = Read(text);
    std::map<std::string, ExperimentModel> models;
    models["a"].model = DescribeReplay(file.experiment.net(0).replay()).model;
    return PointsOf(file, models);
  }

  std::string Refusal(const std::string& before, const std::string& after) const {
    std::string text = kExperiment;
    text.replace(text.find(before), before.size(), after);
    try {
      Points(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  }

  TemporaryDirectory directory_;
};

TEST_F(FailuresTest, EachTimeBetweenFailuresIsAPoint) {
  const std::vector<ExperimentPoint> points = Points(kExperiment);
  ASSERT_EQ(points.size(), 5);
  std::set<std::string> keys;
  for (const ExperimentPoint& point : points) {
    keys.insert(KeyOf(point, ExperimentMode::kSimulate));
    EXPECT_EQ(WhyNotEmulated(point).has_value(), point.failures.has_value());
  }
  EXPECT_EQ(keys.size(), 5);
  EXPECT_EQ(points[0].failures->mtbf(0), "10h");
  EXPECT_EQ(points[0].job.recovery().mode(), Recovery::REPLACE);
  EXPECT_EQ(points[1].job.recovery().mode(), Recovery::NONE);
  EXPECT_THAT(Describe(points[2]), HasSubstr(", a node lives 100h"));
  EXPECT_FALSE(points[4].failures);
  EXPECT_FALSE(points[4].job.has_recovery());
}

TEST_F(FailuresTest, ResultsHaveTheGoodput) {
  const std::vector<ExperimentPoint> points = Points(kExperiment);
  std::vector<double> goodputs;
  {
    ExperimentResults results(directory_.Path("out"), Read(kExperiment).experiment, points);
    results.MakeDirectory();
    for (size_t i = 0; i < points.size(); ++i) {
      const PointResult result = SimulatePoint(points[i]);
      results.Put(i, ExperimentMode::kSimulate, result);
      if (result.goodput) goodputs.push_back(*result.goodput);
    }
  }
  ASSERT_EQ(goodputs.size(), 4) << "and none where nothing fails";
  EXPECT_GT(goodputs[0], goodputs[1]) << "recovery is better than to start again";
  EXPECT_GT(goodputs[2], goodputs[0]) << "ten times as rare";
  EXPECT_GT(goodputs[2], goodputs[3]);
  EXPECT_LT(goodputs[2], 1);
  const ExperimentResults again(directory_.Path("out"), Read(kExperiment).experiment, points);
  EXPECT_NEAR(*again.Get(2, ExperimentMode::kSimulate).goodput, goodputs[2], 1e-12);
  std::ifstream table(directory_.Path("out/results.csv"));
  const std::string text{std::istreambuf_iterator<char>(table), {}};
  EXPECT_THAT(text, HasSubstr("mtbf_hours"));
  EXPECT_THAT(text, HasSubstr(",100,1,simulate,"));
}

// Machines vary as they do without failures.
TEST_F(FailuresTest, GoodputIsOfADisturbedJob) {
  ExperimentPoint point = Points(kExperiment)[0];
  const double unsaid = *SimulatePoint(point).goodput;
  Cluster& cluster = *point.job.mutable_cluster();
  *cluster.mutable_disturbance() = MeasuredDisturbance();
  EXPECT_EQ(unsaid, *SimulatePoint(point).goodput);
  cluster.mutable_disturbance()->Clear();
  EXPECT_NE(unsaid, *SimulatePoint(point).goodput);
}

TEST_F(FailuresTest, SaysWhatIsWrongAndWhere) {
  EXPECT_THAT(Refusal("mtbf: \"10h\"", "mtbf: \"0h\""), HasSubstr("it must be above 0"));
  EXPECT_THAT(Refusal("mtbf: \"10h\"", "mtbf: \"often\""), HasSubstr("mtbf: "));
  EXPECT_THAT(Refusal("mtbf: \"10h\" mtbf: \"100h\"", ""), HasSubstr("failures need mtbf"));
  EXPECT_THAT(Refusal("replacement: \"30s\"", "replacement: \"-1s\""), HasSubstr("replacement: "));
  EXPECT_THAT(
      Refusal("replacement: \"30s\"", "replacement: \"1300000h\""),
      HasSubstr("experiment.prototxt:7:39: replacement is \"1300000h\"; it must be at most"));
  EXPECT_THAT(Refusal("losses: 4", "losses: 0"), HasSubstr("losses"));
  EXPECT_THAT(Refusal("\"5s\"", "\"5\""), HasSubstr("snapshot_cost: "));
  EXPECT_THAT(Refusal("snapshot:10min", "snapshots"),
              HasSubstr("it must be one of replace, shrink"));
  const std::string condition =
      "workers: 3 condition { name: \"slow\" deviation { worker: 1 compute_factor: 2 } ";
  EXPECT_THAT(Refusal("workers: 3\n", condition + "}\n"),
              HasSubstr("of the condition \"slow\"; say known: true, or leave failures out"));
  EXPECT_EQ(Refusal("workers: 3\n", condition + "known: true }\n"), "not refused");
  EXPECT_THAT(Refusal("workers: 3\n", "workers: 3 plan_only: true\n"),
              HasSubstr("what is only planned has no failures"));
  EXPECT_THAT(Refusal("\"WFBP\" recovery: \"snapshot:10min\"", "\"ALL_ADAM\" recovery: \"shrink\""),
              HasSubstr("the servers keep the optimizer state"));
}

}  // namespace
}  // namespace poseidon
