#include "launch/doctor/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

// Two machines with nothing wrong.
CheckedHost GoodHost(const std::string& name, const std::string& address) {
  CheckedHost host;
  host.name = name;
  host.address = name;
  host.workers = 1;
  host.servers = 1;
  host.asked = 100;
  host.answered = 101;
  HostFacts& facts = host.facts;
  facts.clock = 100.5;
  facts.version = "poseidon 1";
  facts.programs = {
      {"poseidon_scheduler", "c"}, {"poseidon_server", "s"}, {"poseidon_worker", "w"}};
  facts.files = {{"solver", "1"}};
  facts.resolved = {{"node0", "10.0.0.1"}, {"node1", "10.0.0.2"}};
  facts.routes = {{"node0", name == "node0" ? "lo" : "eth0"},
                  {"node1", name == "node1" ? "lo" : "eth0"}};
  facts.interfaces = {{"lo", "127.0.0.1", 65536, "noqueue"}, {"eth0", address, 1500, "fq_codel"}};
  facts.cores = 8;
  facts.memory = 1000000000;
  facts.open_files = 4096;
  facts.processes = -1;
  facts.rooms = {{"/tmp", {1000000000, true}}, {"snapshots", {1000000000, true}}};
  facts.data = {{"lmdb", true}};
  facts.congestion_control = "cubic";
  facts.gpus = {{"A100", "535"}};
  facts.whole_packets = true;
  facts.has_working_directory = true;
  return host;
}

class HostChecksTest : public ::testing::Test {
 protected:
  HostChecksTest() {
    needs_.bytes_per_worker = 100000000;
    needs_.bytes_per_server = 50000000;
    needs_.snapshot_bytes = 20000000;
    needs_.snapshot_directory = "snapshots";
    needs_.nodes = 4;
    needs_.gpus = true;
  }

  HostFacts& facts() { return hosts_[1].facts; }  // in which tests make something wrong

  Findings Disks() const { return CheckDisks(hosts_, hosts_.front(), needs_, "/tmp"); }

  CheckedHosts hosts_ = {GoodHost("node0", "10.0.0.1"), GoodHost("node1", "10.0.0.2")};
  HostFacts here_ = GoodHost("here", "10.0.0.9").facts;
  JobNeeds needs_;
};

void ExpectOne(const Findings& findings, FindingLevel level,
               const ::testing::Matcher<const std::string&>& text,
               const ::testing::Matcher<const std::string&>& mend) {
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].level, level);
  EXPECT_THAT(findings[0].text, text);
  EXPECT_THAT(findings[0].mend, mend);
}

void ExpectError(const Findings& findings, const ::testing::Matcher<const std::string&>& text,
                 const ::testing::Matcher<const std::string&>& mend) {
  ExpectOne(findings, FindingLevel::kError, text, mend);
}

void ExpectWarning(const Findings& findings, const ::testing::Matcher<const std::string&>& text,
                   const ::testing::Matcher<const std::string&>& mend) {
  ExpectOne(findings, FindingLevel::kWarning, text, mend);
}

TEST_F(HostChecksTest, WhereNothingIsWrongEachCheckSaysSo) {
  for (const Findings& findings :
       {CheckVersions(here_, hosts_), CheckFiles(here_, hosts_), CheckNames(hosts_),
        CheckClocks(hosts_), CheckLimits(hosts_, needs_), CheckMemory(hosts_, needs_), Disks(),
        CheckData(hosts_), CheckGpus(hosts_, needs_), CheckQueues(hosts_), CheckMtu(hosts_)}) {
    ExpectOne(findings, FindingLevel::kGood, ::testing::Not(""), "");
  }
  EXPECT_EQ(CheckMtu(hosts_)[0].text, "1500 bytes on all 2 hosts");
  EXPECT_EQ(CheckQueues(hosts_)[0].text, "cubic, fq_codel on all 2 hosts");
}

TEST_F(HostChecksTest, Versions) {
  facts().programs["poseidon_worker"] = "other";
  ExpectWarning(CheckVersions(here_, hosts_),
                AllOf(HasSubstr("poseidon_worker on node1 is another file than this machine's, "
                                "though both have poseidon 1"),
                      HasSubstr("compiled differently")),
                HasSubstr("rsync"));
  facts().version.reset();
  ExpectWarning(CheckVersions(here_, hosts_),
                HasSubstr("poseidon_worker on node1 is another build"), HasSubstr("rsync"));
  facts().version = here_.version;
  facts().programs = {{"poseidon_worker", ""}};
  ExpectError(CheckVersions(here_, hosts_), "there is no poseidon_worker on node1",
              HasSubstr("--remote_programs"));
  hosts_[1].workers = 0;
  ExpectOne(CheckVersions(here_, hosts_), FindingLevel::kGood, HasSubstr("same programs"), "");
  facts().programs = {{"poseidon_server", "s"}};
  facts().broken = {{"poseidon_server", "libzmq.so.5: cannot open shared object file"}};
  ExpectError(
      CheckVersions(here_, hosts_),
      "poseidon_server does not start on node1: libzmq.so.5: cannot open shared object file",
      HasSubstr("install the package poseidon there, or run tools/setup of the repository"));
  hosts_[1] = GoodHost("node1", "10.0.0.2");
  facts().programs = {{"poseidon_server", "s"}};
  facts().version = "poseidon 2";
  ExpectError(CheckVersions(here_, hosts_), "node1 has poseidon 2, and this machine poseidon 1",
              HasSubstr("copy"));
}

// Jobs of this project's own workers do without it.
TEST_F(HostChecksTest, TheLibraryThatMakesAProgramAWorker) {
  const std::string library = "libposeidon_caffe_preload.so";
  facts().programs[library] = "";
  ExpectOne(CheckVersions(here_, hosts_), FindingLevel::kGood, HasSubstr("same programs"), "");
  here_.programs[library] = "l";
  ExpectWarning(CheckVersions(here_, hosts_), HasSubstr("there is no " + library + " on node1"),
                HasSubstr("rsync"));
  facts().programs[library] = "l";
  ExpectOne(CheckVersions(here_, hosts_), FindingLevel::kGood, HasSubstr("same programs"), "");
}

TEST_F(HostChecksTest, Files) {
  facts().files["solver"] = "2";
  ExpectError(CheckFiles(here_, hosts_), "solver on node1 is not this machine's",
              HasSubstr("node1"));
  facts().files["solver"] = "";
  facts().has_working_directory = false;
  ExpectError(CheckFiles(here_, hosts_),
              AllOf(HasSubstr("solver can't be read on node1"), HasSubstr("working directory")),
              HasSubstr("rsync"));
}

TEST_F(HostChecksTest, NamesThatAreNotFound) {
  facts().resolved["node0"] = "";
  ExpectError(CheckNames(hosts_), "node1 does not find node0", HasSubstr("hosts file"));
}

TEST_F(HostChecksTest, NamesThatThereWasNoTimeFor) {
  facts().resolved.erase("node0");
  facts().unasked = {"node0"};
  ExpectWarning(CheckNames(hosts_), "node1 finds names so slowly that it had no time for node0",
                HasSubstr("name servers"));
}

TEST_F(HostChecksTest, NamesThatMeanLoopback) {
  facts().interfaces.push_back({"lo", "::1", 65536, "noqueue"});
  for (const std::string loopback : {"127.0.1.1", "::1"}) {  // the first as Debian's installer does
    facts().resolved["node1"] = loopback;
    ExpectWarning(CheckNames(hosts_), HasSubstr("node1 takes its own name for " + loopback),
                  HasSubstr("/etc/hosts"));
  }
}

TEST_F(HostChecksTest, NamesThatMeanDifferentAddresses) {
  facts().resolved["node0"] = "192.168.0.1";
  ExpectError(CheckNames(hosts_),
              AllOf(HasSubstr("node0 means"), HasSubstr("10.0.0.1 on node0"),
                    HasSubstr("192.168.0.1 on node1")),
              HasSubstr("write the address of node0"));
}

TEST_F(HostChecksTest, NamesOfAddressesThatNobodyHas) {
  facts().interfaces.back().address = "172.16.0.1";
  ExpectWarning(CheckNames(hosts_),
                HasSubstr("node1 has no interface with 10.0.0.2, which node1 means;"),
                HasSubstr("behind its name in the hosts file: 172.16.0.1"));
  facts().interfaces.push_back({"lo", "::1", 65536, "noqueue"});
  facts().interfaces.push_back({"eth0", "fe80::1", 1500, "fq_codel"});
  hosts_[1].address = "10.0.0.2";  // as it stands in the hosts file
  for (CheckedHost& host : hosts_) host.facts.resolved["10.0.0.2"] = "10.0.0.2";
  ExpectWarning(CheckNames(hosts_), HasSubstr("node1 has no interface with 10.0.0.2; unless"),
                EndsWith(": 172.16.0.1"));
}

TEST_F(HostChecksTest, NamesOfAnotherInterfaceThanTheOneThatLeadsToTheOthers) {
  facts().interfaces.push_back({"eth1", "192.168.0.2", 1500, "fq_codel"});
  facts().routes["node0"] = "eth1";
  ExpectWarning(CheckNames(hosts_), "node1 is eth0 of node1, which reaches the others by eth1",
                HasSubstr("write 192.168.0.2 behind node1"));
}

TEST_F(HostChecksTest, Clocks) {
  facts().clock = 104.2;
  ExpectWarning(CheckClocks(hosts_), "the clock of node1 is 3.2 s ahead", HasSubstr("set-ntp"));
  facts().clock = 97;
  ExpectWarning(CheckClocks(hosts_), "the clock of node1 is 3.0 s behind", HasSubstr("node1"));
  facts().clock = 101.9;  // at most 0.9 s when it was read last
  ExpectOne(CheckClocks(hosts_), FindingLevel::kGood, HasSubstr("within a second"), "");
  facts().clock.reset();
  ExpectWarning(CheckClocks(hosts_), HasSubstr("can't be read"), HasSubstr("date"));
}

TEST_F(HostChecksTest, Limits) {
  needs_.nodes = 2000;
  needs_.lanes = 4;
  ExpectError(CheckLimits({hosts_[0]}, needs_),
              "a process on node0 may open 4096 files, and this job needs " +
                  std::to_string(OpenFilesOf(2000, 4)),
              HasSubstr("ulimit -Hn"));
  needs_.nodes = 4;
  facts().processes = 20;
  ExpectError(CheckLimits(hosts_, needs_), HasSubstr("may start 20 threads on node1"),
              HasSubstr("ulimit -u"));
  facts().processes.reset();
  ExpectWarning(CheckLimits(hosts_, needs_), HasSubstr("node1 can't be read"),
                HasSubstr("ulimit -a"));
}

TEST_F(HostChecksTest, Memory) {
  facts().memory = 100000000;
  ExpectError(CheckMemory(hosts_, needs_),
              AllOf(HasSubstr("node1 has 100.0 MB of memory left"), HasSubstr("take 150.0 MB")),
              HasSubstr("fewer slots"));
  facts().memory = 200000000;
  ExpectWarning(CheckMemory(hosts_, needs_), HasSubstr("without what the layers compute"),
                HasSubstr("swaps"));
  facts().memory.reset();
  ExpectWarning(CheckMemory(hosts_, needs_), HasSubstr("can't be read"), HasSubstr("free"));
}

TEST_F(HostChecksTest, Disks) {
  facts().rooms["snapshots"].bytes = 0;  // only worker 0's host has any
  ExpectOne(Disks(), FindingLevel::kGood, HasSubstr("snapshots of 20.0 MB on node0"), "");
  hosts_[0].facts.rooms["snapshots"].bytes = 30000000;
  ExpectError(Disks(), "snapshots on node0 has room for 30.0 MB, and two snapshots take 40.0 MB",
              HasSubstr("room"));
  hosts_[0].facts.rooms["snapshots"] = {1000000000, false};
  ExpectError(Disks(), "this user may not write to snapshots on node0", HasSubstr("chown"));
  hosts_[0] = GoodHost("node0", "10.0.0.1");
  facts().rooms.erase("/tmp");
  ExpectWarning(Disks(), HasSubstr("/tmp on node1 can't be found out"), HasSubstr("df /tmp"));
}

TEST_F(HostChecksTest, Data) {
  facts().data["lmdb"] = false;
  ExpectError(CheckData(hosts_), "lmdb can't be read on node1", HasSubstr("convert"));
  hosts_[1].workers = 0;
  ExpectOne(CheckData(hosts_), FindingLevel::kGood, HasSubstr("can be read"), "");
}

TEST_F(HostChecksTest, Gpus) {
  hosts_[1].workers = 2;
  ExpectError(CheckGpus(hosts_, needs_), "node1 has 1 GPU(s), and its workers want 2",
              HasSubstr("devices_per_worker"));
  hosts_[1].workers = 1;
  facts().gpus[0].driver = "550";
  ExpectWarning(CheckGpus(hosts_, needs_),
                AllOf(HasSubstr("535 on node0"), HasSubstr("550 on node1")),
                HasSubstr("same driver"));
  facts().gpus.clear();
  ExpectError(CheckGpus(hosts_, needs_), "nvidia-smi shows no GPU on node1",
              HasSubstr("training.device"));
  needs_.gpus = false;
  ExpectOne(CheckGpus(hosts_, needs_), FindingLevel::kGood, HasSubstr("CPUs"), "");
}

TEST_F(HostChecksTest, Queues) {
  facts().congestion_control = "bbr";
  ExpectWarning(CheckQueues(hosts_), AllOf(HasSubstr("bbr on node1"), HasSubstr("cubic on node0")),
                HasSubstr("sysctl -w net.ipv4.tcp_congestion_control"));
  facts().congestion_control = "cubic";
  facts().interfaces.back().queueing_discipline = "pfifo_fast";
  ExpectWarning(CheckQueues(hosts_), HasSubstr("eth0 on node1 has one queue"),
                HasSubstr("tc qdisc replace dev eth0 root fq_codel"));
}

TEST_F(HostChecksTest, Mtu) {
  facts().interfaces.back().mtu = 9000;
  ExpectWarning(CheckMtu(hosts_), AllOf(HasSubstr("1500 on node0"), HasSubstr("9000 on node1")),
                HasSubstr("mtu 1500"));
  facts().interfaces.back().mtu = 1500;
  facts().whole_packets = false;
  ExpectError(CheckMtu(hosts_), HasSubstr("packets of node1 that are as large as its MTU"),
              HasSubstr("ip link set"));
}

}  // namespace
}  // namespace poseidon
