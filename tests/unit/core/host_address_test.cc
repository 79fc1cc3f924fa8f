#include "core/net/host_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/random.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(HostAddressTest, ResolvesNamesAndAddressesOfBothKinds) {
  EXPECT_EQ(ResolveHost("localhost"), "127.0.0.1");
  EXPECT_EQ(ResolveHost("10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(ResolveHost("FD00:0::07"), "fd00::7");
  EXPECT_EQ(ResolveHost("[::1]"), "::1");
  try {
    ResolveHost("no such host", "cluster.scheduler_host");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("can't resolve cluster.scheduler_host \"no such host\": "),
                      HasSubstr("; name a machine that DNS or /etc/hosts has")));
  }
}

TEST(HostAddressTest, KnowsItsOwnAddresses) {
  EXPECT_EQ(OwnAddressTowards("127.0.0.9"), "127.0.0.1");
  EXPECT_TRUE(IsOwnAddress("127.0.0.1"));
  EXPECT_TRUE(IsOwnAddress("127.0.0.9"));
  EXPECT_FALSE(IsOwnAddress("192.0.2.1"));    // for documentation, so nobody's
  EXPECT_FALSE(IsOwnAddress("2001:db8::1"));  // likewise
  EXPECT_FALSE(IsOwnAddress("no such host"));
  // Where there is no IPv6 at all, there is no such address.
  EXPECT_EQ(IsOwnAddress("::1"), OwnAddressTowards("::1") == "::1");
}

TEST(HostAddressTest, TellsAddressesFromNames) {
  for (const char* const address : {"::", "::1", "[::1]", "fd00::1:5000"}) {
    EXPECT_TRUE(IsIpv6Address(address)) << address;
    EXPECT_TRUE(IsIpAddress(address)) << address;
  }
  EXPECT_TRUE(IsIpAddress("10.0.0.1"));
  EXPECT_FALSE(IsIpv6Address("10.0.0.1"));
  for (const char* const other : {"", "node0", "10.0.0", "10.0.0.1:5", "::1::", "[::1", "*"}) {
    EXPECT_FALSE(IsIpAddress(other)) << other;
  }
  EXPECT_EQ(CanonicalAddress("FD00::0:1"), "fd00::1");
  EXPECT_EQ(CanonicalAddress("node0"), "node0");
}

TEST(HostAndPortTest, ReadsWhatItWrites) {
  Random random(1);
  const std::vector<std::string> hosts = {"node0", "10.0.0.1", "::1", "fd00::1", "a-b.c", "*"};
  for (int i = 0; i < 1000; ++i) {
    const HostAndPort written{hosts[random.Below(hosts.size())],
                              1 + static_cast<int>(random.Below(65535))};
    const auto read = HostAndPort::Parse(written.ToString());
    ASSERT_TRUE(read) << written.ToString();
    EXPECT_EQ(read->host, written.host);
    EXPECT_EQ(read->port, written.port);
  }
  EXPECT_EQ((HostAndPort{"::1", 5}).ToString(), "[::1]:5");
  EXPECT_EQ((HostAndPort{"[::1]", 5}).ToString(), "[::1]:5");
  for (const char* const bad : {"", ":", ":5", "a", "a:", "a:0", "a:65536", "a:5x", "a: 5", "::1:5",
                                "fd00::1", "a:-1", "a:99999999999999999999"}) {
    EXPECT_FALSE(HostAndPort::Parse(bad)) << bad;
  }
}

}  // namespace
}  // namespace poseidon
