// What flags change of the config of a job that is run.
#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>

#include "cli/input/flags.h"
#include "cli/input/output_directory.h"
#include "cli/jobs/leave.h"
#include "cli/jobs/run_hosts.h"
#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

TEST(RunConfigTest, AMonitorThatIsNotWantedIsNotChecked) {
  const gflags::FlagSaver saver;
  const TemporaryDirectory directory;
  for (const auto& [monitor, refused] :
       {std::pair("port: 29501", "give one of them another port"),
        std::pair("port: 70000", "65535"),
        std::pair("address: \"0.0.0.0\"", "there is no monitor.token_file")}) {
    FLAGS_config = directory.Write("job.prototxt",
                                   "cluster { scheduler_port: 29500 }\n"
                                   "training { solver: \"solver.prototxt\" }\n"
                                   "monitor { " +
                                       std::string(monitor) + " }\n");
    FLAGS_monitor = true;
    EXPECT_THAT(MessageOf<ConfigError>([] { JobConfigFromFlags(); }), testing::HasSubstr(refused));
    FLAGS_monitor = false;
    EXPECT_FALSE(JobConfigFromFlags().job.has_monitor()) << monitor;
  }
}

TEST(HowToReachTest, NamesTheUsersOwnRemoteShell) {
  const gflags::FlagSaver saver;
  const std::string unknown = "Host key verification failed.";
  const std::string refused = "user@node0: Permission denied (publickey).";
  EXPECT_EQ(HowToReach("node0", unknown), "`ssh node0` shows its key and asks whether to trust it");
  EXPECT_EQ(HowToReach("node0", refused), "`ssh-copy-id node0` brings your key there");
  FLAGS_remote_shell = "ssh -p 2222";
  EXPECT_EQ(HowToReach("node0", unknown),
            "`ssh node0`, with the port and files of your --remote_shell, shows its key and asks "
            "whether to trust it");
  EXPECT_EQ(HowToReach("node0", refused),
            "`ssh-copy-id node0`, with the port and files of your --remote_shell, brings your key "
            "there");
}

TEST(RunConfigTest, ANameThatIsNoneOfADirectoryInOutIsRefused) {
  const gflags::FlagSaver saver;
  FLAGS_out = "";
  EXPECT_EQ(OutputDirectory("a", "job.prototxt"), "out/a");
  for (const char* name : {"", ".", "./", "a/.."}) {
    EXPECT_THAT(MessageOf<ConfigError>([&] { OutputDirectory(name, "job.prototxt"); }),
                testing::StartsWith("job.prototxt: name is \"" + std::string(name) +
                                    "\", and results would go to out itself"));
  }
  FLAGS_out = "elsewhere";
  EXPECT_EQ(OutputDirectory("", "job.prototxt"), "elsewhere");
}

// The job has the port that was free then.
TEST(RunConfigTest, WhoLetsAWorkerLeaveHearsOfTheConfigAsItWasRun) {
  const TemporaryDirectory directory;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  Job job;
  job.set_name("mine");
  job.mutable_cluster()->set_scheduler_host("node0");
  const std::string asks = "asking the scheduler at node0:9700 for up to 20 s";
  EXPECT_EQ(WhomLeaveAsks(job, "mine.prototxt"), asks);
  directory.Write("out/mine/job.prototxt", "");
  EXPECT_EQ(WhomLeaveAsks(job, "mine.prototxt"),
            asks + "; of a job of `poseidon run`, give --config=out/mine/job.prototxt");
  EXPECT_EQ(WhomLeaveAsks(job, ""), asks);
  job.set_run(1);
  EXPECT_EQ(WhomLeaveAsks(job, "out/mine/job.prototxt"), asks);
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace poseidon
