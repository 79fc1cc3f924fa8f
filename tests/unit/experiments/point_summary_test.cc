// Results from summaries whose numbers are worked out by hand.
#include "experiments/point_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "experiments/simulated_point.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two workers and three servers; ten iterations.
nlohmann::json Summary() {
  return nlohmann::json::parse(R"({
    "predicted_iteration_ms": 50,
    "iterations": 10,
    "duration_ms": [900, 800, 10, 100, 20, 90, 30, 40, 50, 60],
    "exposed_ms":  [0,     0,  9,   9,  9,  9, 10, 20, 30, 40],
    "loss": [3, 2, 1.5, 1.25, 1, 1, 1, 1, 1, 0.5],
    "layers": [{"scheme": "SFB", "parameters": 1000}, {"scheme": "PS", "parameters": 1200000},
               {"scheme": "PS", "parameters": 300000}],
    "workers": [
      {"rank": 0, "bytes_sent": 1000, "bytes_received": 900,
       "bytes_to_own_server": 300, "bytes_from_own_server": 200},
      {"rank": 1, "bytes_sent": 1100, "bytes_received": 950,
       "bytes_to_own_server": 350, "bytes_from_own_server": 250}],
    "servers": [
      {"rank": 0, "bytes_sent": 500, "bytes_received": 600},
      {"rank": 1, "bytes_sent": 550, "bytes_received": 650},
      {"rank": 2, "bytes_sent": 0, "bytes_received": 40}]})");
}

ExperimentPoint Point() {
  ExperimentPoint point;
  point.job.mutable_cluster()->set_workers(2);
  point.job.mutable_cluster()->set_servers(3);
  point.job.mutable_training()->set_engine(Training::REPLAY);
  LayerSpec& layer = *point.model.add_layers();
  layer.set_forward_ms(8);
  layer.set_backward_ms(12);
  return point;
}

TEST(PointSummaryTest, TheMiddleHalfCounts) {
  const PointResult result = ReadSummary(Summary().dump(), Point(), 2);
  // Of the eight: 10 and 20, 90 and 100 do not.
  EXPECT_NEAR(result.iteration, 0.045, 1e-12);
  EXPECT_NEAR(result.busy, 1 - 25.0 / 45, 1e-12);
  EXPECT_NEAR(result.compute, 0.020, 1e-12);
  EXPECT_NEAR(result.predicted, 0.050, 1e-12);
  EXPECT_EQ(result.schemes, "PS 1.5M, SFB 1.0K");
  EXPECT_TRUE(result.losses.empty());
  EXPECT_FALSE(result.accuracy);
}

// As a simulation's do: one does 1 a second, the other one in 4 s, so that two take 1.6 s.
TEST(PointSummaryTest, RatesOfAsynchronousWorkersAddUp) {
  nlohmann::json summary = Summary();
  summary["duration_ms"] = std::vector<double>(10, 2500);
  summary["exposed_ms"] = std::vector<double>(10, 0);
  for (const int worker : {0, 1}) {
    summary["workers"][worker]["images"] = 320;
    summary["workers"][worker]["training_seconds"] = worker == 0 ? 10 : 40;
  }
  ExperimentPoint point = Point();
  EXPECT_NEAR(ReadSummary(summary.dump(), point, 2).iteration, 2.5, 1e-12);
  point.job.mutable_communication()->set_staleness(-1);
  EXPECT_NEAR(ReadSummary(summary.dump(), point, 2).iteration, 1.6, 1e-12);
  summary["workers"][1]["images"] = 0;
  EXPECT_THAT(MessageOf<Error>([&] { ReadSummary(summary.dump(), point, 2); }),
              HasSubstr("worker 1 has trained nothing"));
}

// A replay takes the cost of its layers' passes, too, as a simulated worker does.
TEST(PointSummaryTest, ComputingAloneIsWhatASimulationSays) {
  ExperimentPoint point = Point();
  point.iterations = 3;
  point.model.mutable_layers(0)->add_blobs()->add_shape(10);
  LayerSpec& input = *point.model.add_layers();
  input = point.model.layers(0);
  input.clear_backward_ms();  // a pass that takes no time costs none
  point.job.mutable_cluster()->mutable_disturbance()->set_layer_cost("2ms");
  const double compute = ReadSummary(Summary().dump(), point, 2).compute;
  EXPECT_NEAR(compute, 0.034, 1e-12);
  EXPECT_EQ(compute, SimulatePoint(point).compute);
}

TEST(PointSummaryTest, BytesOfMachinesThatWorkersAndServersShare) {
  const PointResult result = ReadSummary(Summary().dump(), Point(), 2);
  // Machine 1: what worker and server send, but not to each other, in ten iterations.
  EXPECT_DOUBLE_EQ(result.bytes_sent, (1100 + 550 - 350 - 250) / 10.0);
  EXPECT_DOUBLE_EQ(result.bytes_received, (950 + 650 - 350 - 250) / 10.0);
  const int machine0 = 1000 + 500 + 900 + 600 - 2 * (300 + 200);
  EXPECT_DOUBLE_EQ(result.mean_bytes, (machine0 + 2050 + 40) / 3.0 / 10);
}

TEST(PointSummaryTest, BytesOfMachinesOfTheirOwn) {
  ExperimentPoint point = Point();
  point.job.mutable_cluster()->mutable_network()->set_colocated(false);
  const PointResult result = ReadSummary(Summary().dump(), point, 2);
  EXPECT_DOUBLE_EQ(result.bytes_sent, 110);
  EXPECT_DOUBLE_EQ(result.bytes_received, 95);
  EXPECT_DOUBLE_EQ(result.mean_bytes, (1900 + 2050 + 1100 + 1200 + 40) / 5.0 / 10);
}

TEST(PointSummaryTest, WhatWasTrainedHasLosses) {
  ExperimentPoint point = Point();
  point.job.mutable_training()->set_engine(Training::TORCH);
  nlohmann::json summary = Summary();
  summary["test_accuracy"] = 0.75;
  const PointResult result = ReadSummary(summary.dump(), point, 2);
  EXPECT_THAT(result.losses, ElementsAre(3, 2, 1.5, 1.25, 1, 1, 1, 1, 1, 0.5));
  EXPECT_EQ(result.accuracy, 0.75);
  // What its own machine took, whatever the model says of others.
  EXPECT_NEAR(result.compute, 0.020, 1e-12);
}

TEST(PointSummaryTest, RefusesWhatIsNoSummary) {
  const auto error = [](const std::string& text, int warm_up) {
    return MessageOf<Error>([&] { ReadSummary(text, Point(), warm_up); });
  };
  EXPECT_THAT(error("", 2), HasSubstr("not what it should be"));
  EXPECT_THAT(error("{}", 2), HasSubstr("not what it should be"));
  EXPECT_THAT(error(Summary().dump(), 10), HasSubstr("had 10 iterations; the first 10"));
  nlohmann::json larger = Summary();
  larger["workers"][0]["rank"] = 7;
  EXPECT_THAT(error(larger.dump(), 2), HasSubstr("another cluster"));
}

}  // namespace
}  // namespace poseidon
