// What a node tells the others of where it is. Addresses in forms that only a resolver knows stand
// for names.
#include "transport/membership/node_setup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iostream>

#include "core/error.h"
#include "core/process/build_identity.h"
#include "core/program.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

Job OpenJob() {
  Job job;
  job.mutable_security()->add_allow("10.0.0.0/8");
  return job;
}

// Others would look it up whenever they connect anew, in the thread of all their connections.
TEST(NodeZmqOptions, HaveANamesAddress) {
  EXPECT_EQ(NodeZmqOptions(OpenJob(), "10.1").public_host, "10.0.0.1");
  EXPECT_EQ(NodeZmqOptions(OpenJob(), "10.0.0.7").public_host, "10.0.0.7");
  EXPECT_EQ(NodeZmqOptions(OpenJob(), "localhost").public_host, "127.0.0.1");
}

// A machine may call itself by a loopback address, where others know another one.
TEST(NodeZmqOptions, KeepANameThatIsLoopbackHereOnly) {
  EXPECT_EQ(NodeZmqOptions(OpenJob(), "127.257").public_host, "127.257");
}

TEST(NodeZmqOptions, NameAHostThatCanNotBeResolved) {
  EXPECT_THAT(MessageOf<ConfigError>([] { NodeZmqOptions(OpenJob(), "no such host"); }),
              HasSubstr("the other nodes are to reach this one there"));
}

// An end that does not send would else close a connection whose other end repeats what was lost
// later.
TEST(NodeZmqOptions, KeepConnectionsThroughASilenceThatTheJobOutlives) {
  Job job = OpenJob();
  job.mutable_communication()->set_heartbeat_deadline_seconds(120);
  const auto silent = [&] { return NodeZmqOptions(job, "10.0.0.7").silent_connection; };
  // Half a minute for the kernel's probes to find that the other end is there again.
  EXPECT_GE(silent(), Seconds(120 + 20));
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  job.mutable_recovery()->set_scheduler_deadline_seconds(300);
  EXPECT_GE(silent(), Seconds(120 + 300 + 20));
}

TEST(OpenFilesOf, CountsWhatEachLaneHasWithEachNode) {
  EXPECT_GE(OpenFilesOf(2000, 4), 2000 * 4 * 5) << "a connection to each node, and from it";
  EXPECT_EQ(OpenFilesOf(40, 0), OpenFilesOf(40, 1)) << "two lanes as the scheduler's";
}

// Of nodes all count that the config lets take part, and not all need be connected with each other.
TEST(ClaimFilesOf, TellsOfAJobThatHasMoreNodesThanThisProcessMayOpenFilesFor) {
  const auto claim = [](const Job& job) {
    const rlimit few = {.rlim_cur = 200, .rlim_max = 200};
    setrlimit(RLIMIT_NOFILE, &few);
    ClaimFilesOf(job, 2);
    std::cerr << MessageOf<Error>([&] { ClaimSchedulersFiles(job); }) << std::endl;
    _exit(0);
  };
  Job job;
  job.mutable_cluster()->set_workers(4);
  job.mutable_cluster()->set_servers(20);
  job.mutable_elastic()->set_max_workers(30);
  job.mutable_recovery()->set_spare_workers(3);
  job.mutable_recovery()->set_spare_servers(5);
  const std::string more = "a process may open no more than 200 files, and ";
  EXPECT_EXIT(claim(job), testing::ExitedWithCode(0),
              more + "a node of this job may need " +
                  std::to_string(OpenFilesOf(30 + 20 + 3 + 5, 2)) + ": raise the hard .*\n" + more +
                  "the scheduler of this job needs " + std::to_string(64 + 2 * 3 * (4 + 20)) +
                  ": raise the hard limit");
  job.mutable_cluster()->set_servers(2);
  EXPECT_EXIT(claim(job), testing::ExitedWithCode(0), "files, and a node of this job may .*\n\n");
}

TEST(NodeMemberOptions, SayOfWhichBuildTheProgramIs) {
  ZmqOptions options;
  options.bind_host = "127.0.0.1";
  const ZmqRuntime runtime({Role::kWorker, -1}, options);
  Job job;
  job.mutable_cluster()->set_scheduler_host("localhost");
  const MemberOptions member = NodeMemberOptions(job, 12, Role::kWorker, -1, "127.0.0.1", runtime);
  EXPECT_EQ(member.build, BuildIdentity());
  EXPECT_THAT(member.build, testing::MatchesRegex("[0-9.]+[+][0-9a-f]+"));
}

Cluster ClusterAt(const std::string& host, double join_deadline) {
  Cluster cluster;
  cluster.set_scheduler_host(host);
  cluster.set_join_deadline_seconds(join_deadline);
  return cluster;
}

TEST(AwaitSchedulerName, WaitsUntilTheDeadline) {
  AwaitSchedulerName(ClusterAt("localhost", 60), [] { FAIL() << "the name is known"; });
  int asked = 0;
  const auto wait = [&] { AwaitSchedulerName(ClusterAt("no such host", 1.5), [&] { ++asked; }); };
  EXPECT_THAT(MessageOf<ConfigError>(wait),
              HasSubstr("can't resolve cluster.scheduler_host \"no such host\": "));
  EXPECT_EQ(asked, 2);
}

TEST(AwaitSchedulerName, CanBeInterrupted) {
  EXPECT_THROW(AwaitSchedulerName(ClusterAt("no such host", 60), [] { throw Interrupted(); }),
               Error);
}

TEST(StallDeadline, GrowsWithTheStepsBetweenExchanges) {
  Job job;
  Communication& communication = *job.mutable_communication();
  communication.set_stall_deadline_seconds(3);
  EXPECT_EQ(StallDeadline(job), Seconds(3));
  communication.set_local_steps(100);
  EXPECT_EQ(StallDeadline(job), Seconds(300));
  communication.set_fragments(4);
  EXPECT_EQ(StallDeadline(job), Seconds(75));
  communication.set_fragments(40);
  EXPECT_EQ(StallDeadline(job), Seconds(9));
  communication.set_stall_deadline_seconds(1e6);
  communication.set_local_steps(1000000);
  communication.set_fragments(1);
  EXPECT_GT(StallDeadline(job), Seconds(1e7));
}

}  // namespace
}  // namespace poseidon
