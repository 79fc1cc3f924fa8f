#include "core/net/ip_networks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace poseidon {
namespace {

TEST(IpNetworks, ContainTheirAddressesAndNoOthers) {
  const IpNetworks networks({"10.0.0.0/8", "192.168.7.9", "fd00::/8", "::2"});
  for (const char* address : {"10.0.0.0", "10.255.255.255", "192.168.7.9", "::ffff:10.1.2.3",
                              "fd00::1", "fdff::", "::2"}) {
    EXPECT_TRUE(networks.Contains(address)) << address;
  }
  for (const char* address : {"9.255.255.255", "11.0.0.0", "192.168.7.8", "::ffff:11.0.0.1",
                              "fe00::", "::1", "", "node0", "10.0.0.0/8", "10.0.0", "-"}) {
    EXPECT_FALSE(networks.Contains(address)) << address;
  }
}

TEST(IpNetworks, OfALengthThatIsNoMultipleOfEight) {
  // Bits below the length do not count.
  const IpNetworks networks({"172.16.200.1/12", "2001:db8::1/33"});
  EXPECT_TRUE(networks.Contains("172.31.255.255"));
  EXPECT_FALSE(networks.Contains("172.32.0.0"));
  EXPECT_TRUE(networks.Contains("2001:db8:7fff::"));
  EXPECT_FALSE(networks.Contains("2001:db8:8000::"));
  EXPECT_TRUE(IpNetworks({"0.0.0.0/0"}).Contains("8.8.8.8"));
  EXPECT_FALSE(IpNetworks({"0.0.0.0/0"}).Contains("fd00::1"));
  EXPECT_FALSE(IpNetworks().Contains("8.8.8.8"));
}

TEST(IpNetworks, NamesWhatIsNone) {
  for (const char* text : {"", "10.0.0.0/33", "fd00::/129", "10.0.0.0/", "node0", "10.0.0/8"}) {
    try {
      const IpNetworks networks({"10.0.0.0/8", text});
      FAIL() << text;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("\"" + std::string(text) + "\" is no network"));
    }
  }
}

TEST(IpNetworks, KnowsTheLoopback) {
  for (const char* address :
       {"127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopbackName(address)) << address;
  }
  for (const char* address : {"128.0.0.1", "::", "0.0.0.0", "localhost.example", "10.0.0.1", ""}) {
    EXPECT_FALSE(IsLoopbackName(address)) << address;
  }
}

}  // namespace
}  // namespace poseidon
