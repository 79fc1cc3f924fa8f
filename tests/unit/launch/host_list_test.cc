#include "launch/host_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

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
              testing::AllOf(HasSubstr("hosts:3: "), HasSubstr("\"fast\" is too much")));
  for (const char* const name :
       {"-oProxyCommand=evil", "node0;reboot", "$(reboot)", "@node", "a@"}) {
    EXPECT_THAT(ErrorOf(std::string("node0\n") + name),
                testing::AllOf(HasSubstr("hosts:2: "), HasSubstr("is no host")))
        << name;
  }
  EXPECT_THAT(ErrorOf("node0 alice@node0"), HasSubstr("hosts:1: \"alice@node0\" is no address"));
  EXPECT_THAT(ErrorOf("node0 fe80::1"), HasSubstr("is no address"));
}

TEST_F(HostListTest, AnAddressThatMeansAnotherMachineToEachIsRefused) {
  EXPECT_THAT(ErrorOf("localhost\nnode1\n"), HasSubstr("do not reach localhost at localhost"));
  EXPECT_THAT(ErrorOf("node0\nnode1 127.0.0.1\n"), HasSubstr("do not reach node1 at 127.0.0.1"));
  EXPECT_EQ(Read("localhost\nnode7 127.0.0.2\n").size(), 2u) << "all on this machine";
  EXPECT_EQ(Read("localhost 10.0.0.1\nnode1\n").size(), 2u);
}

TEST_F(HostListTest, WithoutHosts) {
  EXPECT_THAT(ErrorOf(" \n# nobody\n"), HasSubstr("there is no host"));
  EXPECT_THAT(MessageOf<ConfigError>([] { ReadHosts("/there/is/none"); }),
              HasSubstr("can't read /there/is/none: No such file or directory"));
}

}  // namespace
}  // namespace poseidon
