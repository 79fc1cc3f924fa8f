// What `poseidon simulate` answers, for a profile whose numbers are worked out by hand.
#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command_line.h"
#include "cli/planning/simulate.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

// 80,000 and 1000 x 999 + 1000 floats; 23 ms.
constexpr char kProfile[] = R"(
  training {
    engine: REPLAY
    replay {
      batch: 16
      layers { name: "conv" parameters: 80000 forward_ms: 5 backward_ms: 10 }
      layers { name: "relu" type: "ReLU" parameters: 0 forward_ms: 1 backward_ms: 1 }
      layers { name: "fc" type: "InnerProduct" inputs: 999 outputs: 1000
               forward_ms: 2 backward_ms: 4 }
    }
  })";
constexpr char kNet[] = R"(
  layer {
    name: "data" type: "Data" top: "data" top: "label"
    data_param { source: "/there/is/none" batch_size: 32 backend: LMDB }
  }
  layer {
    name: "fc" type: "InnerProduct" bottom: "data" top: "fc"
    inner_product_param { num_output: 64 }
  }
  layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
)";
constexpr int kWorkers = 8;
constexpr double kComputeMs = 23;

class SimulateVerbTest : public ::testing::Test {
 protected:
  SimulateVerbTest() {
    path_ = std::filesystem::path(::testing::TempDir()) /
            ("simulate_verb_test." + std::to_string(getpid()) + ".prototxt");
    std::ofstream(path_) << kProfile;
    options_.source.profile = path_;
    options_.job.mutable_cluster()->set_workers(kWorkers);
    options_.job.mutable_cluster()->set_servers(kWorkers);
    SetNetwork("10Gbps", "50us");
  }
  ~SimulateVerbTest() override { std::filesystem::remove(path_); }

  Network& network() { return *options_.job.mutable_cluster()->mutable_network(); }

  void SetNetwork(const std::string& bandwidth, const std::string& latency) {
    network().set_bandwidth(bandwidth);
    network().set_latency(latency);
  }

  ClusterAnswer Simulate(const std::string& policy) {
    for (const auto& [name, communication] : SimulatedPolicies()) {
      if (name != policy) continue;
      *options_.job.mutable_communication() = communication;
      return SimulateModel(options_, 5);
    }
    throw ConfigError("no policy " + policy);
  }

  std::string path_;
  PlanOptions options_;
};

TEST(SimulationReportTest, SaysEveryFewSecondsHowMuchIsLeft) {
  std::ostringstream out;
  SimulationReport report(out, Seconds(100));
  const auto said = [&](const SimulationProgress& progress, double now) {
    out.str("");
    report.On(progress, Seconds(now));
    return out.str();
  };
  EXPECT_EQ(said({1000, 0}, 101), "") << "a quick simulation says nothing";
  EXPECT_EQ(said({50'000, 0}, 104),
            "simulating: processes join and the scheduler plans; 50,000 messages so far\n");
  EXPECT_EQ(said({60'000, 0.001}, 106), "");
  EXPECT_EQ(said({70'000, 0.002}, 108), "");
  EXPECT_EQ(said({1'000'000, 0.25}, 136),
            "simulated 25.0%, 1,000,000 messages in 36 s; about 1 min 36 s left\n");
  EXPECT_EQ(said({1'100'000, 0.26}, 140), "") << "not more often than every five seconds";
  EXPECT_EQ(said({2'000'000, 0.5}, 166),
            "simulated 50.0%, 2,000,000 messages in 1 min 6 s; about 1 min 2 s left\n");
}

TEST_F(SimulateVerbTest, NetworkWithoutLimitsCostsNothing) {
  SetNetwork("1Tbps", "1ns");
  network().set_message_cost("1ns");
  Cluster& cluster = *options_.job.mutable_cluster();
  cluster.set_reduction_rate(1e18);
  cluster.set_update_rate(1e18);
  cluster.set_flops(1e18);
  for (const auto& [policy, communication] : SimulatedPolicies()) {
    SCOPED_TRACE(policy);
    const ClusterAnswer answer = Simulate(policy);
    EXPECT_NEAR(1000 * answer.training.compute, kComputeMs, 1e-6);
    // Eight times 4.3 MB go to a server in 0.3 ms.
    EXPECT_GT(answer.Efficiency(), 0.98);
    EXPECT_LT(answer.Efficiency(), 1 + 1e-9);
    EXPECT_NEAR(answer.training.busy, answer.Efficiency(), 1e-6);
    EXPECT_NEAR(answer.Speedup(), kWorkers, 0.02 * kWorkers);
    const double images = kWorkers * 16 / (kComputeMs / 1000);
    EXPECT_NEAR(answer.ImagesPerSecond(), images, 0.02 * images);
  }
}

TEST_F(SimulateVerbTest, SlowNetworksShowWhatOverlapGains) {
  std::map<std::string, double> before;  // with less bandwidth
  for (const std::string bandwidth : {"500Mbps", "2Gbps", "8Gbps", "32Gbps"}) {
    SCOPED_TRACE(bandwidth);
    SetNetwork(bandwidth, "50us");
    std::map<std::string, double> seconds;
    for (const std::string policy : {"ps", "wfbp", "bytes", "ring"}) {
      const ClusterAnswer answer = Simulate(policy);
      seconds[policy] = answer.training.iteration;
      EXPECT_GE(1000 * answer.training.iteration, kComputeMs - 1e-6) << policy;
      EXPECT_NEAR(answer.training.busy, answer.Efficiency(), 1e-6) << policy;
      if (before.contains(policy)) {
        EXPECT_LE(seconds[policy], before[policy]) << policy;
      }
    }
    EXPECT_GT(seconds["ps"], seconds["wfbp"]);
    before = seconds;
  }
}

// In and out, to the byte; and the time that they take on the link cannot be hidden.
TEST_F(SimulateVerbTest, CountsBytesOfTheMostLoadedMachine) {
  SetNetwork("1Gbps", "50us");
  const double floats = 80000 + 1000 * 1000;
  const ClusterAnswer ring = Simulate("ring");
  EXPECT_EQ(ring.training.bytes_sent, 4 * floats * 2 * (kWorkers - 1) / kWorkers);
  EXPECT_EQ(ring.training.bytes_received, ring.training.bytes_sent);
  EXPECT_GE(ring.training.iteration, ring.training.bytes_sent / (0.94 * 1e9 / 8));

  network().set_colocated(false);
  options_.job.mutable_cluster()->set_servers(2);
  // fc is two KV pairs of 2 MB, one for each server; conv is one of 320 kB.
  const ClusterAnswer wfbp = Simulate("wfbp");
  EXPECT_EQ(wfbp.training.bytes_received, kWorkers * (2000000 + 320000));
  EXPECT_EQ(wfbp.training.bytes_sent, wfbp.training.bytes_received);
  // Whole layers: fc on one server, conv on the other.
  const ClusterAnswer ps = Simulate("ps");
  EXPECT_EQ(ps.training.bytes_received, kWorkers * 4000000);
  EXPECT_EQ(ps.training.bytes_sent, ps.training.bytes_received);
}

TEST_F(SimulateVerbTest, OutputSaysIt) {
  const ClusterAnswer answer = Simulate("wfbp");
  const auto json = nlohmann::json::parse(SimulationJson(answer));
  EXPECT_EQ(json["workers"], kWorkers);
  EXPECT_EQ(json["batch"], 16);
  EXPECT_EQ(json["iteration_ms"], 1000 * answer.training.iteration);
  EXPECT_EQ(json["images_per_second"], answer.ImagesPerSecond());
  EXPECT_EQ(json["speedup"], answer.Speedup());
  EXPECT_EQ(json["efficiency"], answer.Efficiency());
  EXPECT_EQ(json["gpu_busy"], answer.training.busy);
  EXPECT_EQ(json["bytes_per_node"]["sent"], answer.training.bytes_sent);
  EXPECT_EQ(json["bytes_per_node"]["received"], answer.training.bytes_received);
  EXPECT_GT(json["predicted_ms"], kComputeMs);
  const std::string table = SimulationTable(answer);
  EXPECT_THAT(table, HasSubstr("\ncomputing alone              23.00  ms\n"));
  EXPECT_THAT(table, HasSubstr("\nworkers: 8, servers: 8, samples a worker: 16\n"));
}

TEST_F(SimulateVerbTest, TakesNetsWithTheSpeedOfOneWorker) {
  std::ofstream(path_) << kNet;
  options_.source.profile.clear();
  options_.source.net = path_;
  options_.source.record_shape = Shape{3, 8, 8};
  options_.source.images_per_second = 320;  // 32 samples: 100 ms
  EXPECT_NEAR(Simulate("bytes").training.compute, 0.1, 1e-6);
}

TEST_F(SimulateVerbTest, RefusesWhatItCannotSimulate) {
  EXPECT_THROW(SimulateModel(options_, 2), ConfigError);
  const auto refusal = [this](const std::string& flag) -> std::string {
    gflags::FlagSaver saver;
    std::ostringstream out;
    try {
      RunCommand({"simulate", "--profile=" + path_, "--workers=2", "--servers=1", flag}, out);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_EQ(refusal("--policy=best"),
            "--policy is \"best\"; it must be one of ps, wfbp, poseidon, bytes, time, all_ps, sfb, "
            "ring, halving_doubling, torus, adam");
  EXPECT_THAT(refusal("--iterations=2"), HasSubstr("it must be at least 3"));
  EXPECT_THAT(refusal("--images_per_second=9"), HasSubstr("can't change a profile"));
  EXPECT_THAT(refusal("--format=xml"), HasSubstr("it must be table or json"));
}

}  // namespace
}  // namespace poseidon
