// What `poseidon simulate` answers, for a profile whose numbers are worked out by hand.
#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iomanip>
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
    options_.job.mutable_cluster()->mutable_disturbance();  // none
    SetNetwork("10Gbps", "50us");
  }
  ~SimulateVerbTest() override { std::filesystem::remove(path_); }

  Network& network() { return *options_.job.mutable_cluster()->mutable_network(); }

  void SetNetwork(const std::string& bandwidth, const std::string& latency) {
    network().set_bandwidth(bandwidth);
    network().set_latency(latency);
  }

  ClusterAnswer Simulate(const std::string& policy) {
    const auto found = FindPolicy(SimulatedPolicies(), policy);
    if (!found) throw ConfigError("no policy " + policy);
    *options_.job.mutable_communication() = found->second;
    return SimulateModel(options_, 5);
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
  SetNetwork("10Tbps", "1ns");
  network().set_message_cost("1ns");
  Cluster& cluster = *options_.job.mutable_cluster();
  cluster.set_reduction_rate(1e18);
  cluster.set_update_rate(1e18);
  cluster.set_flops(1e18);
  for (const auto& [policy, communication] : SimulatedPolicies()) {
    SCOPED_TRACE(policy);
    const ClusterAnswer answer = Simulate(policy);
    EXPECT_NEAR(1000 * answer.training.compute, kComputeMs, 1e-6);
    // Eight times 4.3 MB go to a server in 0.03 ms, and back, all at once, in as much.
    EXPECT_GT(answer.Efficiency(), 0.995);
    EXPECT_LT(answer.Efficiency(), 1 + 1e-9);
    EXPECT_NEAR(answer.training.busy, answer.Efficiency(), 1e-6);
    EXPECT_NEAR(answer.Speedup(), kWorkers, 0.005 * kWorkers);
    const double images = kWorkers * 16 / (kComputeMs / 1000);
    EXPECT_NEAR(answer.ImagesPerSecond(), images, 0.005 * images);
  }
}

TEST_F(SimulateVerbTest, SlowNetworksShowWhatOverlapGains) {
  std::map<std::string, double> before;  // with less bandwidth
  for (const std::string bandwidth : {"500Mbps", "2Gbps", "8Gbps", "32Gbps"}) {
    SCOPED_TRACE(bandwidth);
    SetNetwork(bandwidth, "50us");
    std::map<std::string, double> seconds;
    for (const std::string policy : {"CAFFE_PS", "WFBP", "BYTES", "ALL_RING"}) {
      const ClusterAnswer answer = Simulate(policy);
      seconds[policy] = answer.training.iteration;
      EXPECT_GE(1000 * answer.training.iteration, kComputeMs - 1e-6) << policy;
      EXPECT_NEAR(answer.training.busy, answer.Efficiency(), 1e-6) << policy;
      if (before.contains(policy)) {
        EXPECT_LE(seconds[policy], before[policy]) << policy;
      }
    }
    EXPECT_GT(seconds["CAFFE_PS"], seconds["WFBP"]);
    before = seconds;
  }
}

// In and out, to the byte; and the time that they take on the link cannot be hidden.
TEST_F(SimulateVerbTest, CountsBytesOfTheMostLoadedMachine) {
  SetNetwork("1Gbps", "50us");
  const double floats = 80000 + 1000 * 1000;
  const ClusterAnswer ring = Simulate("ALL_RING");
  EXPECT_EQ(ring.training.bytes_sent, 4 * floats * 2 * (kWorkers - 1) / kWorkers);
  EXPECT_EQ(ring.training.bytes_received, ring.training.bytes_sent);
  EXPECT_GE(ring.training.iteration, ring.training.bytes_sent / (0.94 * 1e9 / 8));

  network().set_colocated(false);
  options_.job.mutable_cluster()->set_servers(2);
  // fc is two KV pairs of 2 MB, one for each server; conv is one of 320 kB.
  const ClusterAnswer wfbp = Simulate("WFBP");
  EXPECT_EQ(wfbp.training.bytes_received, kWorkers * (2000000 + 320000));
  EXPECT_EQ(wfbp.training.bytes_sent, wfbp.training.bytes_received);
  // Whole layers: fc on one server, conv on the other.
  const ClusterAnswer ps = Simulate("CAFFE_PS");
  EXPECT_EQ(ps.training.bytes_received, kWorkers * 4000000);
  EXPECT_EQ(ps.training.bytes_sent, ps.training.bytes_received);
}

// The planner knows of it, and the simulated worker behaves so.
TEST_F(SimulateVerbTest, ASlowWorkerHoldsUpAllOthersAsPredicted) {
  SetNetwork("100Tbps", "0us");
  Deviation& deviation = *options_.job.mutable_cluster()->add_deviation();
  deviation.set_worker(5);
  deviation.set_compute_factor(3);
  const ClusterAnswer answer = Simulate("BYTES");
  EXPECT_NEAR(1000 * answer.training.iteration, 3 * kComputeMs, 0.5);
  EXPECT_NEAR(answer.training.plan.iteration_ms(), 3 * kComputeMs, 0.5);
  EXPECT_EQ(answer.limits.by, "computing");
}

TEST_F(SimulateVerbTest, OutputSaysIt) {
  const ClusterAnswer answer = Simulate("WFBP");
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
  EXPECT_THAT(table, HasSubstr("  of 8, by computing alone\n"));
  EXPECT_THAT(table, HasSubstr("\nworkers: 8, servers: 8, samples a worker: 16\n"));
}

TEST_F(SimulateVerbTest, JsonHasAllTimesOfOneStep) {
  options_.job.mutable_communication()->set_policy(Communication::ALL_RING);
  options_.job.mutable_communication()->set_local_steps(8);
  ClusterAnswer answer = SimulateModel(options_, 5);
  OtherLanes& other = *answer.training.plan.add_other_lanes();
  other.set_lanes(4);
  other.set_iteration_ms(answer.training.plan.iteration_ms());
  const auto json = nlohmann::json::parse(SimulationJson(answer));
  const double milliseconds = json["iteration_ms"];
  EXPECT_NEAR(json["predicted_ms"], milliseconds, 0.05 * milliseconds);
  EXPECT_NEAR(json["limits"]["iteration_ms"], milliseconds, 0.05 * milliseconds);
  EXPECT_NEAR(json["lanes"]["others"].back()["iteration_ms"], milliseconds, 0.05 * milliseconds);
}

TEST_F(SimulateVerbTest, TakesNetsWithTheSpeedOfOneWorker) {
  std::ofstream(path_) << kNet;
  options_.source.profile.clear();
  options_.source.net = path_;
  options_.source.record_shape = Shape{3, 8, 8};
  options_.source.images_per_second = 320;  // 32 samples: 100 ms
  EXPECT_NEAR(Simulate("BYTES").training.compute, 0.1, 1e-6);
}

// Times of a CPU are no reason to rebuild gradients from factors at a GPU's rate.
TEST_F(SimulateVerbTest, TakesTheFlopsOfAProfileUnlessOthersAreSaid) {
  EXPECT_FALSE(LoadModelAndJob(options_).job.cluster().has_flops());
  std::ofstream(path_) << "cluster { flops: 3e10 }" << kProfile;
  EXPECT_EQ(LoadModelAndJob(options_).job.cluster().flops(), 3e10);
  options_.job.mutable_cluster()->set_flops(1e13);
  EXPECT_EQ(LoadModelAndJob(options_).job.cluster().flops(), 1e13);
  std::ofstream(path_) << "cluster { flops: 3 }" << kProfile;
  EXPECT_THAT([this] { LoadModelAndJob(options_); },
              ::testing::ThrowsMessage<ConfigError>(
                  HasSubstr(path_ + ": cluster.flops is 3; it must be between")));
}

// A job's net has the batch of all of a worker's devices, and `simulate` is told of one's.
TEST_F(SimulateVerbTest, DevicesComputeSideBySideAsInAJob) {
  std::ofstream(path_) << kNet;
  options_.source.profile.clear();
  options_.source.net = path_;
  options_.source.record_shape = Shape{3, 8, 8};
  options_.job.mutable_cluster()->set_devices_per_worker(4);
  const SimulatedTraining training = Simulate("ALL_PS").training;
  options_.source.batch = 4 * 32;
  const ModelAndJob of_a_job = LoadModelAndJob(options_);
  const Job& job = of_a_job.job;
  const Plan plan = PlanJob(InformationBook(of_a_job.model, job.cluster()), job);
  EXPECT_DOUBLE_EQ(plan.compute_ms(), training.plan.compute_ms());
  EXPECT_DOUBLE_EQ(SecondsAlone(job, of_a_job.model), training.compute);
}

TEST_F(SimulateVerbTest, ComputingAloneIsTheUsualWorkersAsOfAPlan) {
  Deviation& deviation = *options_.job.mutable_cluster()->add_deviation();
  deviation.set_worker(3);
  deviation.set_compute_factor(2);
  const auto simulated = nlohmann::json::parse(SimulationJson(Simulate("ALL_RING")));
  const PlannedModel planned = PlanModel(options_);
  const auto json = nlohmann::json::parse(PlanJson(planned));
  constexpr double kNanosecond = 1e-6;  // in milliseconds, of which simulated times are whole
  EXPECT_NEAR(json["compute_ms"], simulated["compute_ms"], kNanosecond);
  EXPECT_NEAR(json["slowest_compute_ms"], 2 * kComputeMs, kNanosecond);
  EXPECT_THAT(PlanTable(planned), HasSubstr("computing alone, the slowest worker: 46.00 ms"));
}

// Of `poseidon simulate` with these flags.
class SimulateFailuresTest : public SimulateVerbTest {
 protected:
  std::string Output(std::vector<std::string> flags) {
    gflags::FlagSaver saver;
    std::vector<std::string> words = {"simulate", "--profile=" + path_, "--workers=4",
                                      "--servers=4"};
    words.insert(words.end(), flags.begin(), flags.end());
    std::ostringstream out;
    ::testing::internal::CaptureStdout();
    std::string refused;
    try {
      RunCommand(words, out);
    } catch (const Error& error) {
      refused = error.what();
    }
    const std::string output = ::testing::internal::GetCapturedStdout();
    return refused.empty() ? output : "refused: " + refused;
  }

  nlohmann::json Failures(std::vector<std::string> flags) {
    flags.push_back("--format=json");
    return nlohmann::json::parse(Output(std::move(flags)))["failures"];
  }
};

TEST_F(SimulateFailuresTest, AFlagSaysWhetherAForwardPassWaitsForAllLayers) {
  const auto iteration = [this](const std::string& policy, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--policy=" + policy, "--bandwidth=1Gbps", "--disturbance=none",
                               "--lanes=1", "--format=json"});
    return nlohmann::json::parse(Output(std::move(flags)))["iteration_ms"].get<double>();
  };
  const double each_its_own = iteration("ALL_PS", {});
  EXPECT_GT(iteration("ALL_PS", {"--wait_for_all"}), each_its_own);
  EXPECT_EQ(iteration("ALL_PS", {"--nowait_for_all"}), each_its_own);
  // As the paper's systems do, unless told otherwise.
  EXPECT_EQ(iteration("WFBP", {}), iteration("WFBP", {"--wait_for_all"}));
  EXPECT_GT(iteration("WFBP", {}), iteration("WFBP", {"--nowait_for_all"}));
}

// As of a scheduler that really does not answer, whose machine somebody should look at.
TEST_F(SimulateFailuresTest, NodesThatWaitLongForTheSimulatedSchedulerDoNotWarn) {
  ::testing::internal::CaptureStderr();
  const std::string said = Output({"--latency=6s", "--policy=ALL_PS"});
  const std::string warned = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("what limits: the network"));
  EXPECT_THAT(warned, ::testing::Not(HasSubstr("no answer from the scheduler")));
}

TEST_F(SimulateFailuresTest, ANetworkThatIsTooSlowForTheJobsDeadlinesIsNamed) {
  const std::string said =
      Output({"--failures=720h:1min", "--losses=1", "--policy=ALL_PS", "--bandwidth=110Kbps"});
  EXPECT_THAT(said, testing::StartsWith("refused: the simulated job has lost "));
  EXPECT_THAT(said, testing::HasSubstr("(communication.stall_deadline_seconds)"));
}

TEST_F(SimulateFailuresTest, JsonSaysWhatTheyCost) {
  const auto json = Failures({"--failures=720h:1min", "--losses=3", "--seed=5"});
  EXPECT_EQ(json["recovery"], "replace");
  EXPECT_EQ(json["nodes"], 8);
  EXPECT_EQ(json["mtbf_seconds"], 720 * 3600);
  EXPECT_EQ(json["replacement_seconds"], 60);
  EXPECT_EQ(json["recovered"]["losses"], 3);
  EXPECT_EQ(json["recovered"]["recoveries"], 3);
  EXPECT_GT(json["recovered"]["total_ms"], 50000);
  EXPECT_LT(json["recovered"]["total_ms"], 65000);
  EXPECT_GT(json["goodput"], 0.999);
  EXPECT_LT(json["goodput"], 1);
  EXPECT_GT(json["goodput"], json["restarted"]["goodput"]);
  EXPECT_TRUE(json["restarted"]["best_interval"]);
  const double lost = json["recovered"]["seconds_of_a_loss"];
  EXPECT_NEAR(
      lost,
      (1 - json["goodput"].get<double>()) * json["recovered"]["wall_seconds"].get<double>() / 3,
      0.01);
  EXPECT_NEAR(json["long_run_goodput"], 1 - lost * 8 / (720 * 3600), 1e-12);
  // The same command says the same, another seed something else.
  EXPECT_EQ(Failures({"--failures=720h:1min", "--losses=3", "--seed=5"}), json);
  EXPECT_NE(Failures({"--failures=720h:1min", "--losses=3", "--seed=6"})["goodput"],
            json["goodput"]);
}

TEST_F(SimulateFailuresTest, SnapshotsAreComputed) {
  const auto json =
      Failures({"--failures=100h:5min", "--recovery=snapshot:30min", "--snapshot_cost=10s"});
  EXPECT_EQ(json["recovery"], "snapshot");
  EXPECT_TRUE(json["recovered"].is_null());
  EXPECT_TRUE(json["long_run_goodput"].is_null());
  EXPECT_EQ(json["restarted"]["interval_seconds"], 1800);
  EXPECT_EQ(json["restarted"]["snapshot_seconds"], 10);
  EXPECT_FALSE(json["restarted"]["best_interval"]);
  EXPECT_EQ(json["goodput"], json["restarted"]["goodput"]);
  const auto best =
      Failures({"--failures=100h:5min", "--recovery=snapshot", "--snapshot_cost=10s"});
  EXPECT_GT(best["goodput"], json["goodput"]);
}

// A job that recovers updates and rebuilds on its hosts, one that starts again does so on its GPUs.
TEST_F(SimulateFailuresTest, AJobThatStartsAgainHasAPaceOfItsOwn) {
  const std::vector<std::string> flags = {"--failures=720h:1min", "--losses=1",
                                          "--gpu=v100",           "--update_rate=1e8",
                                          "--policy=ALL_RING",    "--snapshot_cost=30s"};
  const auto with = [&](const std::string& flag) {
    std::vector<std::string> words = flags;
    words.push_back(flag);
    return words;
  };
  const auto recovering = Failures(with("--recovery=replace"));
  const auto restarting = Failures(with("--recovery=snapshot"));
  EXPECT_EQ(recovering["restarted"], restarting["restarted"]);
  EXPECT_EQ(recovering["restarted"]["images_per_second"], restarting["images_per_second"]);
  EXPECT_GT(recovering["goodput"], restarting["goodput"]);
  EXPECT_LT(recovering["images_per_second"], restarting["images_per_second"]);
  const double rate = restarting["images_per_second"];
  std::ostringstream said;
  said << std::fixed << std::setprecision(1) << "%, " << rate << " images/s\n(computed by Daly's";
  EXPECT_THAT(Output(with("--recovery=replace")), HasSubstr(said.str()));
}

TEST_F(SimulateFailuresTest, TextSaysWhatIsSimulatedAndWhatIsNot) {
  const std::string text = Output({"--failures=720h:1min", "--losses=2"});
  EXPECT_THAT(text, HasSubstr("\nlosses               2\n"));
  EXPECT_THAT(text, HasSubstr("nodes: 8, of which one fails every 3.8 days; another process is "
                              "there after 60.0 s\n"));
  EXPECT_THAT(text, HasSubstr("between them are counted, not simulated\n"));
  EXPECT_THAT(text, HasSubstr("beside it: starting all again from a snapshot every "));
  EXPECT_THAT(text, HasSubstr("Daly's formula"));
  EXPECT_THAT(text, HasSubstr("in the long run, if each loss costs "));
  const std::string shrunk = Output({"--failures=720h:1min", "--losses=1", "--recovery=shrink"});
  EXPECT_THAT(shrunk, HasSubstr("workers left: "));
  EXPECT_THAT(shrunk, HasSubstr("one fails every 3.8 days; nobody comes in its place\n"));
  EXPECT_THAT(Output({}), ::testing::Not(HasSubstr("goodput")));
  const std::string deadline = "such a job needs recovery { replacement_deadline_seconds } above ";
  EXPECT_THAT(text, ::testing::Not(HasSubstr(deadline)));
  EXPECT_THAT(Output({"--failures=720h:5min", "--losses=1"}), HasSubstr(deadline + "its 120.0 s"));
}

TEST_F(SimulateFailuresTest, RefusesNonsense) {
  const std::string failures = "--failures=720h:1min";
  EXPECT_THAT(Output({"--failure=720h:1min"}), HasSubstr("did you mean --failures?"));
  EXPECT_THAT(Output({"--failures=720h"}), HasSubstr("it must be MTBF:DURATION"));
  EXPECT_THAT(Output({"--failures="}), HasSubstr("it must be MTBF:DURATION"));
  EXPECT_THAT(Output({"--failures=0h:1min"}), HasSubstr("it must be above 0"));
  EXPECT_THAT(Output({"--failures=-1h:1min"}),
              HasSubstr("--failures, the time until a node fails"));
  EXPECT_THAT(Output({"--failures=720h:1300000h"}),
              HasSubstr("the time until another process is there is \"1300000h\"; it must be at "
                        "most 1000000s, as long as a job waits for one "
                        "(recovery.replacement_deadline_seconds)"));
  EXPECT_THAT(
      Output({failures, "--recovery=replacing"}),
      HasSubstr("--recovery: recovery is \"replacing\"; it must be one of replace, shrink"));
  EXPECT_THAT(Output({failures, "--recovery=snapshot:0s"}), HasSubstr("it must be above 0"));
  EXPECT_THAT(Output({failures, "--losses=0"}), HasSubstr("--losses is 0; it must be at least 1"));
  EXPECT_THAT(Output({failures, "--losses=-4"}), HasSubstr("it must be at least 1"));
  EXPECT_THAT(Output({failures, "--losses=many"}), HasSubstr("can't be \"many\""));
  EXPECT_THAT(Output({failures, "--seed=-1"}), HasSubstr("can't be \"-1\""));
  EXPECT_THAT(Output({failures, "--snapshot_cost=1"}), HasSubstr("--snapshot_cost: "));
  EXPECT_THAT(Output({failures, "--snapshot_cost=0s"}), HasSubstr("it must be above 0"));
  EXPECT_THAT(Output({failures, "--heartbeat_deadline_seconds=0.5"}),
              HasSubstr("--heartbeat_deadline_seconds"));
  EXPECT_THAT(Output({failures, "--heartbeat_interval_seconds=-1"}),
              HasSubstr("--heartbeat_interval_seconds"));
  EXPECT_THAT(Output({failures, "--policy=ALL_ADAM", "--recovery=shrink"}),
              HasSubstr("with --recovery SHRINK use another"));
  EXPECT_THAT(Output({failures, "--codec=1bit", "--policy=ALL_PS"}), HasSubstr("goodput"));
  EXPECT_THAT(Output({failures, "--workers=1"}),
              HasSubstr("only a restart from a snapshot is left"));
  const std::vector<std::string> local = {failures, "--local_steps=8", "--policy=ALL_RING"};
  EXPECT_THAT(Output(local), HasSubstr("of communication.local_steps 8 can't recover; ask for a "
                                       "restart from a snapshot"));
  EXPECT_THAT(Output({local[0], local[1], local[2], "--recovery=snapshot"}), HasSubstr("goodput"));
  EXPECT_THAT(Output({failures, "--recovery=shrink", "--losses=9"}),
              HasSubstr("ask for fewer losses"));
  for (const std::string flag : {"--recovery=shrink", "--losses=3", "--seed=3",
                                 "--snapshot_cost=1s", "--heartbeat_deadline_seconds=10"}) {
    EXPECT_THAT(Output({flag}), HasSubstr("give --failures=MTBF:DURATION, too")) << flag;
  }
}

TEST_F(SimulateVerbTest, WhatCannotRecoverIsRefusedBeforeItIsPlanned) {
  const auto refusal = [](const PlanOptions& options) -> std::string {
    SimulationControl control;
    control.planner = [](const InformationBook& book, const Job& job) {
      ADD_FAILURE() << "it is planned";
      return PlanJob(book, job);
    };
    FailureQuestion question;
    question.scenario = ParseFailures("--failures", "720h:1min");
    try {
      SimulateModel(options, 5, control, question);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  };
  PlanOptions local = options_;
  local.job.mutable_communication()->set_policy(Communication::ALL_RING);
  local.job.mutable_communication()->set_local_steps(8);
  EXPECT_THAT(refusal(local), HasSubstr("of communication.local_steps 8 can't recover"));
  options_.job.mutable_cluster()->set_workers(1);
  EXPECT_THAT(refusal(options_), HasSubstr("only a restart from a snapshot is left"));
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
            "--policy is \"best\"; it must be one of CAFFE_PS, WFBP, POSEIDON, BYTES, TIME, "
            "ALL_PS, ALL_SFB, ALL_RING, ALL_HALVING_DOUBLING, ALL_TORUS, ALL_ADAM");
  EXPECT_THAT(refusal("--iterations=2"), HasSubstr("it must be at least 3"));
  EXPECT_THAT(refusal("--images_per_second=9"), HasSubstr("can't change a profile"));
  EXPECT_THAT(refusal("--format=xml"), HasSubstr("it must be table or json"));
  // What would be passed over without a word.
  EXPECT_EQ(refusal("--grid=1x2"),
            "--grid is of workers under the torus, which --policy=BYTES does not use; give "
            "--policy=ALL_TORUS or TIME, or leave --grid out");
  EXPECT_EQ(refusal("--gpu_bandwidth=50Gbps"),
            "--gpu_bandwidth is what joins a worker's GPUs, of which it has one; give "
            "--gpus_per_node above 1, or leave --gpu_bandwidth out");
}

}  // namespace
}  // namespace poseidon
