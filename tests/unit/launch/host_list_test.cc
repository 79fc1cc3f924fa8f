#include "launch/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class HostListTest : public ::testing::Test {
 protected:
  std::vector<Host> Read(const std::string& text) {
    return ReadHosts(directory_.Write("hosts", text));
  }
  std::string ErrorOf(const std::string& text) {
    return MessageOf<ConfigError>([&] { Read(text); });
  }

  TemporaryDirectory directory_;
};

TEST_F(HostListTest, AHostALine) {
  const std::vector<Host> hosts = Read(
      "# ours\n"
      "node0\n"
      "\n"
      "  alice@node1.example.net\t10.0.0.2  # the fast network\n"
      "node0\r\n"
      "bob@10.0.0.7");
  ASSERT_EQ(hosts.size(), 4u);
  EXPECT_EQ(hosts[0].name, "node0");
  EXPECT_EQ(hosts[0].address, "node0");
  EXPECT_EQ(hosts[1].name, "alice@node1.example.net");
  EXPECT_EQ(hosts[1].address, "10.0.0.2");
  EXPECT_EQ(hosts[2].name, "node0");
  EXPECT_EQ(hosts[3].name, "bob@10.0.0.7");
  EXPECT_EQ(hosts[3].address, "10.0.0.7");
}

TEST_F(HostListTest, WrongLinesAreNamed) {
  EXPECT_THAT(ErrorOf("node0\n# none\nnode1 10.0.0.2 fast\n"),
              testing::AllOf(HasSubstr("hosts:3:16: "), HasSubstr("\"fast\" is too much")));
  for (const char* const name :
       {"-oProxyCommand=evil", "node0;reboot", "$(reboot)", "@node", "a@"}) {
    EXPECT_THAT(ErrorOf(std::string("node0\n") + name),
                testing::AllOf(HasSubstr("hosts:2:1: "), HasSubstr("is no host")))
        << name;
  }
  EXPECT_THAT(ErrorOf("node0 alice@node0"), HasSubstr("hosts:1:7: \"alice@node0\" is no address"));
  EXPECT_THAT(ErrorOf("node0 fd00:1"), HasSubstr("is no address"));
}

// With brackets or without: ssh wants none.
TEST_F(HostListTest, Ipv6Addresses) {
  EXPECT_EQ(Read("node0 fd00::1\n").front().address, "fd00::1");
  EXPECT_EQ(Read("node0 [fd00::1]\n").front().address, "fd00::1");
  for (const std::string text : {"fd00::1", "[fd00::1]"}) {
    for (const std::string user : {"", "bob@"}) {
      const Host host = Read(user + text + " slots=2\n").front();
      EXPECT_EQ(host.name, user + "fd00::1");
      EXPECT_EQ(host.address, "fd00::1");
      EXPECT_EQ(host.slots, 2);
    }
  }
  EXPECT_EQ(Read("fe80::1%eth0").front().address, "fe80::1%eth0");
  for (const char* const name :
       {"fd00:1", "[fd00::1", "fd00::1]", "[node0]", "bob@[", "@fd00::1", "@@node0", "@a@node0",
        "fe80::1%$(reboot)", "fe80::1%;id", "fe80::1%'"}) {
    EXPECT_THAT(ErrorOf(name), HasSubstr("is no host")) << name;
  }
}

TEST_F(HostListTest, AnAddressThatMeansAnotherMachineToEachIsRefused) {
  EXPECT_THAT(ErrorOf("localhost\nnode1\n"), HasSubstr("do not reach localhost at localhost"));
  EXPECT_THAT(ErrorOf("node0\nnode1 127.0.0.1\n"), HasSubstr("do not reach node1 at 127.0.0.1"));
  EXPECT_EQ(Read("localhost\nnode7 127.0.0.2\n").size(), 2u) << "all on this machine";
  EXPECT_EQ(Read("localhost 10.0.0.1\nnode1\n").size(), 2u);
}

TEST_F(HostListTest, SlotsAndRoles) {
  const std::vector<Host> hosts = Read(
      "node0 slots=2\n"
      "node1 10.0.0.1 roles=server slots=3\n"
      "node2 roles=worker,server\n");
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_EQ(hosts[0].slots, 2);
  EXPECT_TRUE(hosts[0].takes_workers && hosts[0].takes_servers);
  EXPECT_EQ(hosts[1].address, "10.0.0.1");
  EXPECT_EQ(hosts[1].slots, 3);
  EXPECT_FALSE(hosts[1].takes_workers);
  EXPECT_TRUE(hosts[1].takes_servers);
  EXPECT_TRUE(hosts[2].takes_workers && hosts[2].takes_servers);
  EXPECT_EQ(BySlot(hosts).size(), 6u);
}

TEST_F(HostListTest, WrongSlotsAndRolesAreNamed) {
  for (const char* const slots : {"0", "-1", "two", "", "5000", "2x"}) {
    EXPECT_THAT(ErrorOf(std::string("node0  slots=") + slots),
                testing::AllOf(HasSubstr("hosts:1:8: slots is \""),
                               HasSubstr("it must be between 1 and 4096")))
        << slots;
  }
  EXPECT_THAT(ErrorOf("node0\nnode1 roles=worker,boss"),
              HasSubstr("hosts:2:7: \"boss\" is no role; expected"));
  EXPECT_THAT(ErrorOf("node0 roles="), HasSubstr("hosts:1:7: no role stands behind"));
  EXPECT_THAT(ErrorOf("node0 10.0.0.1 port=22"), HasSubstr("hosts:1:16: \"port=22\" is too much"));
}

// Else the last one would count without a word.
TEST_F(HostListTest, AWordThatStandsTwiceIsRefused) {
  EXPECT_THAT(
      ErrorOf("node0\nnode1 slots=2 slots=4"),
      HasSubstr("hosts:2:15: slots= is there twice, as \"slots=2\" and \"slots=4\"; write"));
  EXPECT_THAT(ErrorOf("node0 roles=worker slots=2 roles=server"),
              HasSubstr("hosts:1:28: roles= is there twice, as \"roles=worker\" and "));
}

TEST_F(HostListTest, AByteOrderMarkIsNoPartOfAName) {
  EXPECT_EQ(Read("\xef\xbb\xbfnode0\n").front().name, "node0");
  EXPECT_THAT(ErrorOf("\xef\xbb\xbfnode0 node1 node2"), HasSubstr("hosts:1:13: "));
}

std::vector<std::string> NamesIn(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

TEST_F(HostListTest, RanksGoToSlotsInTheirOrder) {
  const std::vector<Host> hosts = Read("a slots=2\nb\nc roles=server\n");
  const HostRanks together = AssignRanks(hosts, 3, 2, true, "hosts");
  EXPECT_EQ(NamesIn(together.workers), (std::vector<std::string>{"a", "a", "b"}));
  EXPECT_EQ(NamesIn(together.servers), (std::vector<std::string>{"a", "a"}));
  const HostRanks apart = AssignRanks(hosts, 2, 2, false, "hosts");
  EXPECT_EQ(NamesIn(apart.workers), (std::vector<std::string>{"a", "a"}));
  EXPECT_EQ(NamesIn(apart.servers), (std::vector<std::string>{"b", "c"}));
  const std::vector<Host> first = Read("c roles=server slots=2\na slots=2\n");
  EXPECT_EQ(NamesIn(AssignRanks(first, 2, 2, false, "hosts").servers),
            (std::vector<std::string>{"c", "c"}));
}

TEST_F(HostListTest, TooFewSlotsAreCounted) {
  const std::vector<Host> hosts = Read("a slots=2\nc roles=server\n");
  const auto error_of = [&](int workers, int servers, bool colocated) {
    return MessageOf<ConfigError>(
        [&] { AssignRanks(hosts, workers, servers, colocated, "hosts"); });
  };
  EXPECT_THAT(error_of(3, 1, true),
              AllOf(HasSubstr("hosts: there is room for 2 worker(s), and the job has 3; name more"),
                    HasSubstr(", or take --workers=2")));
  EXPECT_THAT(error_of(2, 4, true), HasSubstr("room for 3 server(s), and the job has 4"));
  EXPECT_THAT(error_of(2, 2, false), HasSubstr("room for 1 server(s), and the job has 2"));
}

TEST_F(HostListTest, WorkersOfAHostShareItsCores) {
  const std::vector<Host> workers = BySlot(Read("a slots=2\nb\n"));
  EXPECT_EQ(CoresForEachWorker(workers, {{"a", 16}, {"b", 4}, {"c", 1}}), 4);
  EXPECT_EQ(CoresForEachWorker(workers, {{"a", 7}, {"b", 4}}), 3);
  EXPECT_EQ(CoresForEachWorker(workers, {{"a", 1}, {"b", 4}}), 1);
  EXPECT_EQ(CoresForEachWorker(workers, {{"a", 16}}), 1) << "b has said nothing";
}

TEST_F(HostListTest, WithoutHosts) {
  EXPECT_THAT(ErrorOf(" \n# nobody\n"), HasSubstr("there is no host"));
  EXPECT_THAT(MessageOf<ConfigError>([] { ReadHosts("/there/is/none"); }),
              HasSubstr("can't read /there/is/none: No such file or directory"));
}

}  // namespace
}  // namespace poseidon
