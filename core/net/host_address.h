// Hosts by name and by address, IPv4 and IPv6. Functions without state; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace poseidon {

// All addresses of a name or an address, IPv4 ones first; none if it can't be resolved. May wait
// for a name server.
std::vector<std::string> AddressesOf(const std::string& host);

// The address of a name or an address: its first IPv4 one, else its first IPv6 one. "[::1]" is
// "::1". May wait for a name server. Throws ConfigError that calls the host `what`, as in "can't
// resolve cluster.scheduler_host "node0": ...".
//
//   ResolveHost("localhost")  // "127.0.0.1"
std::string ResolveHost(const std::string& host, const std::string& what = "the host");

// The address of this machine from which packets to `address` leave; nullopt if no route leads
// there. Nothing is sent.
std::optional<std::string> OwnAddressTowards(const std::string& address);

// Whether `host`, a name or an address, means this machine: false for one that can't be resolved,
// or that the network translates to this machine's.
bool IsOwnAddress(const std::string& host);

// Whether `host` is an address, of IPv4 or IPv6, or an IPv6 address, in brackets or not. Names are
// not looked up, and are none.
bool IsIpAddress(const std::string& host);
bool IsIpv6Address(const std::string& host);
// "fd00::1" for "[fd00::1]"; what has no brackets stays as it is.
std::string WithoutBrackets(const std::string& host);
// The same address as everybody writes it: "FD00::0:1" is "fd00::1". What is none stays as it is.
std::string CanonicalAddress(const std::string& host);

// "10.0.0.1:5000", "node0:5000", "[fd00::1]:5000". A value.
struct HostAndPort {
  std::string host;  // an IPv6 address without its brackets
  int port = 0;
  // nullopt if the text has no host or no port from 1 to 65535. An IPv6 address needs its brackets.
  static std::optional<HostAndPort> Parse(const std::string& text);
  // An IPv6 address gets brackets if it has none.
  std::string ToString() const;
};

}  // namespace poseidon
