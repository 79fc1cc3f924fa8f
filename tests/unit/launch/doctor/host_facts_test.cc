#include "launch/doctor/host_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/files/regular_file.h"
#include "core/process/allowance.h"
#include "launch/host_query.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;

TEST(HostFacts, AreReadFromLines) {
  const HostFacts facts = ParseFacts(
      "Last login: yesterday\n"
      "clock\t1700000000.5\n"
      "version\tposeidon 0.1.0\n"
      "program\tposeidon_worker\tabc\n"
      "program\tposeidon_server\n"
      "resolved\tnode1\t10.0.0.2\n"
      "resolved\tnode2\n"
      "unasked\tnode3\n"
      "route\tnode1\teth0\n"
      "interface\teth0\t10.0.0.1\t1500\tfq_codel\n"
      "whole_packets\tno\n"
      "cores\t8\nmemory\t2048\nfiles_limit\t1024\nprocesses_limit\tunlimited\n"
      "room\t/tmp\t100\tyes\n"
      "data\tout/lmdb\tno\n"
      "congestion_control\tcubic\n"
      "gpu\tNVIDIA A100\t535.1\n"
      "working_directory\tyes\n");
  EXPECT_EQ(facts.clock, 1700000000.5);
  EXPECT_EQ(facts.version, "poseidon 0.1.0");
  EXPECT_EQ(facts.programs.at("poseidon_worker"), "abc");
  EXPECT_EQ(facts.programs.at("poseidon_server"), "");
  EXPECT_EQ(facts.resolved.at("node1"), "10.0.0.2");
  EXPECT_EQ(facts.resolved.at("node2"), "");
  EXPECT_THAT(facts.unasked, ElementsAre("node3"));
  EXPECT_EQ(facts.routes.at("node1"), "eth0");
  ASSERT_EQ(facts.interfaces.size(), 1u);
  EXPECT_EQ(facts.interfaces[0].address, "10.0.0.1");
  EXPECT_EQ(facts.interfaces[0].mtu, 1500);
  EXPECT_EQ(facts.interfaces[0].queueing_discipline, "fq_codel");
  EXPECT_EQ(facts.whole_packets, false);
  EXPECT_EQ(facts.cores, 8);
  EXPECT_EQ(facts.memory, 2048 * 1024);
  EXPECT_EQ(facts.open_files, 1024);
  EXPECT_EQ(facts.processes, -1);
  EXPECT_EQ(facts.rooms.at("/tmp").bytes, 100 * 1024);
  EXPECT_TRUE(facts.rooms.at("/tmp").writable);
  EXPECT_FALSE(facts.data.at("out/lmdb"));
  EXPECT_EQ(facts.congestion_control, "cubic");
  ASSERT_EQ(facts.gpus.size(), 1u);
  EXPECT_EQ(facts.gpus[0].driver, "535.1");
  EXPECT_TRUE(facts.has_working_directory);
}

TEST(HostFacts, WhatIsNotThereIsNotKnown) {
  const HostFacts facts = ParseFacts("clock\tnever\ncores\nmemory\t-1\nversion\t\n\t\nnonsense\n");
  EXPECT_EQ(facts.clock, std::nullopt);
  EXPECT_EQ(facts.cores, std::nullopt);
  EXPECT_EQ(facts.memory, std::nullopt);
  EXPECT_EQ(facts.version, std::nullopt);
  EXPECT_FALSE(facts.has_working_directory);
}

// What its shell functions find is what this program's own do.
TEST(HostFacts, CoresAndMemoryAreThoseThatControlGroupsAllow) {
  const TemporaryDirectory root;
  root.Write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n");
  const auto ask = [&root] {
    return AskHere(std::string(kAllowanceFunctions) + "root=" + root.path() +
                       "\necho $(usable_cores) $(usable_memory)\n",
                   Seconds(60), nullptr)
        .text;
  };
  cpu_set_t pinned;  // to which this process is; the groups that it is really in count not here
  ASSERT_EQ(sched_getaffinity(0, sizeof pinned, &pinned), 0);
  EXPECT_EQ(ask(), std::to_string(CPU_COUNT(&pinned)) + " 8000\n");
  root.Write("proc/self/cgroup", "3:memory:/job\n2:cpu,cpuacct:/job\n0::/a b/job\n");
  root.Write("sys/fs/cgroup/a b/job/cpu.max", "max 100000\n");
  root.Write("sys/fs/cgroup/a b/cpu.max", "150000 100000\n");
  root.Write("sys/fs/cgroup/a b/memory.max", "4194304\n");
  root.Write("sys/fs/cgroup/a b/memory.current", "3145728\n");
  root.Write("sys/fs/cgroup/a b/memory.stat", "anon 5\ninactive_file 2097152\n");
  EXPECT_EQ(ask(), "1 3072\n");
  EXPECT_EQ(ReadGroupAllowance(root.path()).memory, 3 << 20);
  root.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2097152\n");
  root.Write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "2097152\n");
  root.Write("sys/fs/cgroup/memory/job/memory.stat",
             "inactive_file 1\ntotal_inactive_file 1048576\n");
  EXPECT_EQ(ask(), "1 1024\n");
  EXPECT_EQ(ReadGroupAllowance(root.path()).memory, 1 << 20);
  root.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000\n");
  root.Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ask(), "1 1024\n");
  EXPECT_EQ(ReadGroupAllowance(root.path()).cores, 0.5);
  // In another order than the directory's name has, which has links by each.
  root.Write("proc/self/cgroup", "2:freezer,cpuset:/job\n");
  EXPECT_EQ(ReadGroupAllowance(root.path()).cores, GroupAllowance().cores);
  root.Write("sys/fs/cgroup/cpuset/job/cpu.cfs_quota_us", "150000\n");
  root.Write("sys/fs/cgroup/cpuset/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ReadGroupAllowance(root.path()).cores, 1.5);
  EXPECT_EQ(ask(), "1 8000\n");
}

// The script itself, on this machine.
TEST(HostFacts, ThisMachineAnswers) {
  const TemporaryDirectory directory;
  directory.Write("it's a net", "net");
  directory.Write("lmdb/data.mdb", "records");
  std::filesystem::create_directory(directory.Path("empty"));
  HostQuestions questions;
  questions.programs = directory.path();
  questions.addresses = {"127.0.0.1", "no.such.host.invalid"};
  questions.next = "127.0.0.1";
  questions.files = {directory.Path("it's a net"), directory.Path("none")};
  questions.data = {directory.Path("lmdb"), directory.Path("empty"), directory.Path("none")};
  questions.directories = {directory.Path("not/yet/there")};
  questions.working_directory = std::filesystem::current_path().string();
  const HostAnswer answer = AskHere(FactsScript(questions), Seconds(60), nullptr);
  EXPECT_EQ(answer.failure, "");
  const HostFacts facts = ParseFacts(answer.text);
  EXPECT_EQ(facts.cores, UsableCores());
  EXPECT_GT(facts.memory.value_or(0), 0);
  EXPECT_TRUE(facts.open_files && facts.processes);
  EXPECT_TRUE(facts.clock);
  EXPECT_EQ(facts.files.at(directory.Path("it's a net")).size(), 16u);
  EXPECT_EQ(facts.files.at(directory.Path("none")), "");
  EXPECT_EQ(facts.programs.at("poseidon_worker"), "");
  EXPECT_TRUE(facts.data.at(directory.Path("lmdb")));
  EXPECT_FALSE(facts.data.at(directory.Path("empty")));
  EXPECT_FALSE(facts.data.at(directory.Path("none")));
  EXPECT_EQ(facts.resolved.at("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(facts.resolved.at("no.such.host.invalid"), "");
  const Room room = facts.rooms.at(directory.Path("not/yet/there"));
  EXPECT_TRUE(room.writable);
  EXPECT_GT(room.bytes, 1 << 20);
  EXPECT_TRUE(facts.has_working_directory);
}

// What this machine answers with a shell script for one of the programs that it is asked by.
HostFacts AnswerWith(const TemporaryDirectory& directory, const std::string& program,
                     const std::string& script, const std::string& asked) {
  const std::string path = directory.Write(program, "#!/bin/sh\n" + script);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  const std::string search = "PATH=" + directory.path() + ":$PATH\n";
  return ParseFacts(AskHere(search + asked, Seconds(60), nullptr).text);
}

TEST(HostFacts, RoomIsKnownWhereWhatIsMountedHasABlankInItsName) {
  const TemporaryDirectory directory;
  HostQuestions questions;
  questions.directories = {directory.path()};
  const HostFacts facts =
      AnswerWith(directory, "df",
                 "echo 'Filesystem     1024-blocks     Used Available Capacity Mounted on'\n"
                 "echo '//server/my share   1000000   250000    750000      25% /mnt/my share'\n",
                 FactsScript(questions));
  EXPECT_EQ(facts.rooms.at(directory.path()).bytes, 750000 * 1024);
  EXPECT_TRUE(facts.rooms.at(directory.path()).writable);
}

// Names that are looked up by a resolver that takes its time, by a clock of its own.
class SlowNames : public testing::Test {
 protected:
  HostFacts AnswerOf(const std::vector<std::string>& names) const {
    directory_.Write("proc/uptime", "1000.00 0.00\n");
    HostQuestions questions;
    questions.addresses = names;
    std::string asked = FactsScript(questions);
    asked.insert(asked.find("root=\n") + 5, directory_.path());
    return AnswerWith(directory_, "timeout",
                      "here=${0%/*}\n"
                      "echo $1 >> $here/waited\n"
                      "takes() {\n"
                      "  read -r uptime idle < $here/proc/uptime\n"
                      "  echo $((${uptime%.*} + $1)).00 0.00 > $here/proc/uptime\n"
                      "}\n"
                      "seconds=${4##*-}\n"
                      "case $4 in\n"
                      "  silent*) takes $1; exit 124 ;;\n"
                      "  *-*) [ $seconds -lt $1 ] || { takes $1; exit 124; }; takes $seconds ;;\n"
                      "esac\n"
                      "case $4 in\n"
                      "  lost*|none*) exit 2 ;;\n"
                      "  slow*) echo 10.0.0.1 STREAM $4 ;;\n"
                      "  six) echo fd00::1 STREAM $4 ;;\n"
                      "  both) printf 'fd00::1 STREAM\\n10.0.0.2 STREAM\\n10.0.0.3 STREAM\\n' ;;\n"
                      "  *) echo $4 ;;\n"
                      "esac\n",
                      asked);
  }
  // The seconds that each name was given.
  std::string Waited() const {
    return ReadRegularFile(directory_.Path("waited"), ExitCode::kFailure);
  }

  TemporaryDirectory directory_;
};

// Of which only so many are asked for that the answer comes in time.
TEST_F(SlowNames, AreNotFoundWhereTheNameServerIsSilent) {
  const HostFacts facts =
      AnswerOf({"silent1", "127.0.0.1", "silent2", "silent3", "silent4", "silent5"});
  const std::map<std::string, std::string> found = {{"127.0.0.1", "127.0.0.1"}, {"silent1", ""}};
  EXPECT_EQ(facts.resolved, found);
  EXPECT_THAT(facts.unasked, ElementsAre("silent2", "silent3", "silent4", "silent5"))
      << "with as much time as the first they might have been found";
  EXPECT_EQ(Waited(), "8\n4\n4\n2\n1\n");
}

TEST_F(SlowNames, OfAResolverThatGivesUpByItselfAreAskedForAsLong) {
  std::vector<std::string> names;
  for (int i = 1; i <= 20; ++i) names.push_back("lost" + std::to_string(i) + "-2");
  const HostFacts facts = AnswerOf(names);
  EXPECT_EQ(facts.resolved.size(), 6u);
  EXPECT_EQ(facts.unasked.size(), 14u);
  EXPECT_EQ(Waited(), "8\n7\n6\n5\n4\n3\n2\n1\n");
}

TEST_F(SlowNames, ThatAreFoundTakeTheirTimeToo) {
  const HostFacts facts =
      AnswerOf({"slow1-3", "slow2-3", "slow3-3", "slow4-3", "slow5-3", "slow6-3"});
  EXPECT_EQ(facts.resolved.size(), 4u);
  EXPECT_EQ(facts.resolved.at("slow4-3"), "10.0.0.1");
  EXPECT_THAT(facts.unasked, ElementsAre("slow5-3", "slow6-3"));
}

TEST_F(SlowNames, AreNotThoseThatAreSoonKnownNotToBeThere) {
  std::vector<std::string> names;
  for (int i = 1; i <= 20; ++i) names.push_back("none" + std::to_string(i));
  names.push_back("node");
  const HostFacts facts = AnswerOf(names);
  EXPECT_EQ(facts.resolved.size(), 21u);
  EXPECT_EQ(facts.resolved.at("node"), "node");
}

TEST_F(SlowNames, MeanAddressesOfIpv4WhereThereAreSome) {
  const HostFacts facts = AnswerOf({"six", "both"});
  EXPECT_EQ(facts.resolved.at("six"), "fd00::1");
  EXPECT_EQ(facts.resolved.at("both"), "10.0.0.2");
}

// It is one argument of the remote shell, for which Linux has a bound of its own (MAX_ARG_STRLEN).
TEST(HostFacts, OfThousandsOfHostsAreAskedFor) {
  constexpr size_t kLongestArgument = 131072;
  HostQuestions questions;
  for (int i = 1000; i < 3000; ++i) {
    questions.addresses.push_back("node" + std::to_string(i) + ".cluster.example.org");
  }
  questions.next = questions.addresses.front();
  EXPECT_LT(LoginShellCommand(FactsScript(questions)).size(), kLongestArgument);
}

TEST(HostQuery, HostsAreAskedAtOnceAndTheirFailuresTold) {
  const TemporaryDirectory directory;
  const std::string shell = directory.Write("shell",
                                            "case $1 in\n"
                                            "  lost) echo no route to $1 >&2; exit 255 ;;\n"
                                            "  silent) exec sleep 100 ;;\n"
                                            "  nologin) echo Not available.; exit 1 ;;\n"
                                            "  mute) exit 1 ;;\n"
                                            "  greeting) printf 'Welcome to $1!' ;;\n"
                                            "esac\n"
                                            "shift; exec sh -c \"$*\"\n");
  const RemoteShell remote = MakeRemoteShell("sh " + shell, "");
  const std::vector<HostAnswer> answers = AskHosts(remote,
                                                   {{"a", "echo it is a; exit 3"},
                                                    {"lost", ""},
                                                    {"silent", ""},
                                                    {"b", "pwd"},
                                                    {"nologin", "true"},
                                                    {"mute", "true"},
                                                    {"greeting", "echo hello"}},
                                                   Seconds(2), nullptr);
  ASSERT_EQ(answers.size(), 7u);
  EXPECT_EQ(answers[0].text, "it is a\n");
  EXPECT_EQ(answers[0].failure, "");
  EXPECT_LE(answers[0].asked, answers[0].answered);
  EXPECT_EQ(answers[1].failure, "no route to lost");
  EXPECT_EQ(answers[2].failure, "has not answered within 2 s");
  EXPECT_EQ(answers[3].text, std::filesystem::current_path().string() + "\n");
  EXPECT_EQ(answers[4].failure, "the login shell runs no command: Not available");
  EXPECT_EQ(answers[5].failure, "the login shell runs no command: it exited with code 1");
  EXPECT_EQ(answers[6].failure, "");
  EXPECT_EQ(answers[6].text, "hello\n");
}

}  // namespace
}  // namespace poseidon
