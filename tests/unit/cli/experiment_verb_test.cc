// What `poseidon experiment` makes of the nets of an experiment file.
#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "core/error.h"
#include "core/process/allowance.h"
#include "experiments/experiment_file.h"
#include "experiments/experiment_points.h"
#include "proto/job.pb.h"
#include "proto/replay_model.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
constexpr char kLayers[] =
    "layers { name: \"fc\" type: \"InnerProduct\" inputs: 192 outputs: 64 forward_ms: 1 }";

std::vector<std::string> Cells(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream text(line);
  for (std::string cell; std::getline(text, cell, ',');) cells.push_back(cell);
  return cells;
}

class ExperimentVerbTest : public ::testing::Test {
 protected:
  // A column of results.csv by net, whose cells have no commas.
  std::map<std::string, double> Column(const std::string& name, const std::string& experiment) {
    std::ostringstream out;
    ::testing::internal::CaptureStdout();
    // The report has no script beside the tests.
    RunCommand({"experiment", directory_.Write("e.prototxt", experiment),
                "--out=" + directory_.Path("out")},
               out);
    ::testing::internal::GetCapturedStdout();
    std::ifstream table(directory_.Path("out/results.csv"));
    std::string line;
    std::getline(table, line);
    const std::vector<std::string> columns = Cells(line);
    const auto at = [&](const std::string& column) {
      return std::find(columns.begin(), columns.end(), column) - columns.begin();
    };
    std::map<std::string, double> values;
    while (std::getline(table, line)) {
      values[Cells(line).at(at("model"))] = std::stod(Cells(line).at(at(name)));
    }
    return values;
  }

  // With what it refuses a sound experiment.
  std::string Refusal(const std::vector<std::string>& flags) {
    const gflags::FlagSaver saver;
    std::vector<std::string> command = {
        "experiment",
        directory_.Write("e.prototxt", "name: \"t\" net { name: \"replay\" replay { " +
                                           std::string(kLayers) +
                                           " } } sweep { system: \"wfbp\" workers: 2 }"),
        "--out=" + directory_.Path("out")};
    command.insert(command.end(), flags.begin(), flags.end());
    std::ostringstream out;
    ::testing::internal::CaptureStdout();
    const std::string refusal = MessageOf<ConfigError>([&] { RunCommand(command, out); });
    ::testing::internal::GetCapturedStdout();
    return refusal;
  }

  gflags::FlagSaver saver_;
  TemporaryDirectory directory_;
};

// Else the points would be simulated, and nobody would hear of the hosts.
TEST_F(ExperimentVerbTest, FlagsOfAnotherModeAreRefused) {
  const std::string hosts = "--hosts=" + directory_.Write("hosts", "a\nb\n");
  EXPECT_EQ(Refusal({hosts}),
            "--hosts is for --mode=run, and the mode is simulate; give --mode=run, too, or leave "
            "--hosts out");
  EXPECT_THAT(Refusal({hosts, "--mode=emulate"}), HasSubstr("--hosts is for --mode=run, and the"));
  EXPECT_THAT(Refusal({"--remote_shell=ssh"}), HasSubstr("--remote_shell is for --mode=run"));
  EXPECT_THAT(Refusal({"--remote_programs=/opt"}),
              HasSubstr("--remote_programs is for --mode=run"));
  const std::string slow = "--slow_motion=2";
  EXPECT_THAT(Refusal({slow}), HasSubstr("--slow_motion is for --mode=emulate, and the mode is"));
  EXPECT_THAT(Refusal({slow, "--mode=run", hosts}), HasSubstr("is for --mode=emulate"));
  EXPECT_FALSE(std::filesystem::exists(directory_.Path("out"))) << "which would hold nothing";
}

// The report asks for how many of the points that were run there are machines.
TEST_F(ExperimentVerbTest, HostsAreOfUseWherePointsWereRun) {
  const std::string hosts = "--hosts=" + directory_.Write("hosts", "a\nb\n");
  EXPECT_EQ(Refusal({}), "");
  const ExperimentFile file = ReadExperiment(directory_.Path("e.prototxt"));
  std::map<std::string, ExperimentModel> models;
  models["replay"].model = DescribeReplay(file.experiment.net(0).replay()).model;
  const ExperimentPoint point = PointsOf(file, models).front();
  const auto result = [&](ExperimentMode mode) {
    return directory_.Path("out/points/") + KeyOf(point, mode) + ".json";
  };
  std::filesystem::copy(result(ExperimentMode::kSimulate), result(ExperimentMode::kRun));
  EXPECT_EQ(Refusal({hosts}), "");
}

TEST_F(ExperimentVerbTest, SlowMotionHasABound) {
  EXPECT_THAT(Refusal({"--mode=emulate", "--slow_motion=2001"}),
              StartsWith("--slow_motion is 2001; it must be at most 2000"));
  EXPECT_EQ(Refusal({"--mode=emulate", "--slow_motion=2000000000"}),
            "--slow_motion is 2000000000; it must be between 1 and 1000000");
  EXPECT_FALSE(std::filesystem::exists(directory_.Path("out")));
}

// As those of `poseidon plan` do. Where times were measured nobody knows of how many operations,
// unless the profile tells.
TEST_F(ExperimentVerbTest, ImagesPerSecondSayFlops) {
  directory_.Write("net.prototxt", kNet);
  directory_.Write("mine.profile",
                   std::string("training { engine: REPLAY replay { ") + kLayers + " } }");
  // A sample a millisecond.
  directory_.Write("rated.profile", std::string("cluster { flops: 3e10 } training { engine: REPLAY "
                                                "replay { batch: 1 ") +
                                        kLayers + " } }");
  const auto flops =
      Column("flops",
             "name: \"t\" net { name: \"net\" net: \"net.prototxt\" input: \"3x8x8\""
             "   images_per_second: 320000000 }"
             " net { name: \"replay\" images_per_second: 320000000 replay { " +
                 std::string(kLayers) +
                 " } }"
                 " net { name: \"profile\" images_per_second: 320000000 profile: \"mine.profile\" }"
                 " net { name: \"rated\" images_per_second: 4000 profile: \"rated.profile\" }"
                 " sweep { system: \"time\" workers: 2 plan_only: true }");
  ASSERT_EQ(flops.size(), 4);
  EXPECT_NEAR(flops.at("net"), 320e6 * 2 * 3 * 192 * 64, 1e6);
  EXPECT_EQ(flops.at("replay"), 4e12) << "the default";
  EXPECT_EQ(flops.at("profile"), 4e12);
  EXPECT_NEAR(flops.at("rated"), 4 * 3e10, 1);
}

TEST_F(ExperimentVerbTest, WhetherTimeStepsAreShuffledIsSaidOfANetThatIsTrained) {
  directory_.Write("net.prototxt", R"(
    layer {
      name: "data" type: "Data" top: "data" top: "label"
      data_param { source: "/there/is/none" batch_size: 4 backend: LMDB }
    }
    layer {
      name: "cont" type: "DummyData" top: "cont"
      dummy_data_param { shape { dim: 4 dim: 3 } }
    }
    layer {
      name: "lstm" type: "LSTM" bottom: "data" bottom: "cont" top: "lstm"
      recurrent_param { num_output: 5 }
    }
    layer {
      name: "fc" type: "InnerProduct" bottom: "lstm" top: "fc"
      inner_product_param { num_output: 7 }
    }
    layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" })");
  directory_.Write("solver.prototxt",
                   "net: \"net.prototxt\" base_lr: 0.01 lr_policy: \"fixed\" max_iter: 3");
  const auto experiment = [](const std::string& shuffle) {
    return "name: \"t\" net { name: \"steps\" solver: \"solver.prototxt\" train: true " + shuffle +
           " input: \"3x8x8\" } sweep { system: \"wfbp\" workers: 2 }";
  };
  std::ostringstream out;
  EXPECT_THAT(MessageOf<Error>([&] {
                RunCommand({"experiment", directory_.Write("e.prototxt", experiment("")),
                            "--out=" + directory_.Path("out")},
                           out);
              }),
              HasSubstr("write shuffle: false into the job's training, or into the net of an "
                        "experiment"));
  EXPECT_EQ(Column("workers", experiment("shuffle: false")).at("steps"), 2);
}

// Else each would compute on one, for many times as long. The remote shell runs everything here,
// where none of our programs are, so that the point fails once it has its job.
TEST_F(ExperimentVerbTest, WorkersThatTrainShareTheCoresOfTheirHosts) {
  directory_.Write("net.prototxt", kNet);
  directory_.Write("solver.prototxt",
                   "net: \"net.prototxt\" base_lr: 0.01 lr_policy: \"fixed\" max_iter: 3");
  const std::string shell = directory_.Write(
      "shell", "#!/bin/sh\n[ \"$1\" = dead ] && echo >> '" + directory_.Path("asked") +
                   "' && exit 255\nshift\nexec sh -c \"$*\"\n");
  std::filesystem::permissions(shell, std::filesystem::perms::owner_all);
  const auto threads = [&](const std::string& hosts, const std::string& workers = "2") {
    const std::string experiment =
        directory_.Write("e.prototxt",
                         "name: \"t\" net { name: \"net\" solver: \"solver.prototxt\" train: true"
                         " input: \"3x8x8\" } sweep { system: \"wfbp\" workers: " +
                             workers + " }");
    std::ostringstream out;
    ::testing::internal::CaptureStdout();
    RunCommand({"experiment", experiment, "--mode=run", "--out=" + directory_.Path("out"),
                "--hosts=" + directory_.Write("hosts", hosts), "--remote_shell=" + shell,
                "--remote_programs=" + directory_.Path("none")},
               out);
    ::testing::internal::GetCapturedStdout();
    Job job;
    for (const auto& point :
         std::filesystem::directory_iterator(directory_.Path("out/processes"))) {
      ReadTextFile(point.path() / "job.prototxt", job);
    }
    return job.training().threads();
  };
  EXPECT_EQ(threads("a 127.0.0.1\nb 127.0.0.1\n"), UsableCores());
  EXPECT_EQ(threads("a 127.0.0.1 slots=2\n"), std::max(1, UsableCores() / 2));
  // A host that does not answer is asked once, and fails the points that need it and no other.
  std::filesystem::remove_all(directory_.Path("out"));
  EXPECT_EQ(threads("a 127.0.0.1\ndead 127.0.0.1\nb 127.0.0.1\n", "[2, 3, 1]"), UsableCores());
  EXPECT_EQ(std::filesystem::file_size(directory_.Path("asked")), 1);
}

// That limit is none for root. Whatever else the user runs counts, too.
TEST_F(ExperimentVerbTest, WithFewThreadsItDoesWhatItCan) {
  constexpr uid_t kNobody = 65534;
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  const std::vector<std::string> command = {
      "experiment",
      directory_.Write("e.prototxt",
                       "name: \"t\" net { name: \"replay\" replay { " + std::string(kLayers) +
                           " } } sweep { system: \"time\" workers: [2, 3, 4, 5, 6, 7] "
                           "plan_only: true }"),
      "--out=" + directory_.Path("out"), "--threads=6"};
  const auto run = [&] {
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(9);
    const rlimit few = {3, 3};
    setrlimit(RLIMIT_NPROC, &few);
    ExitCode code = ExitCode::kFailure;
    try {
      code = RunCommand(command, std::cerr);
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
    _exit(static_cast<int>(code));
  };
  EXPECT_EXIT(
      run(), [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) <= 1; }, "");
}

}  // namespace
}  // namespace poseidon
