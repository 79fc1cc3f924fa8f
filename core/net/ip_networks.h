// IpNetworks: sets of addresses, written as "10.0.0.0/8" or "fd00::/8".
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// A value: immutable once made, so thread-safe.
class IpNetworks {
 public:
  // No address is in it.
  IpNetworks() = default;
  // Each of `networks` is an IPv4 or IPv6 network in CIDR notation ("10.0.0.0/8", "fd00::/8") or a
  // single address ("10.0.0.3"). Throws ConfigError that names the first that is neither.
  //
  //   IpNetworks({"10.0.0.0/8"}).Contains("10.1.2.3")  // true
  explicit IpNetworks(const std::vector<std::string>& networks);

  bool empty() const { return networks_.empty(); }
  // Whether `address`, "10.0.0.3" or "fd00::3", is in one of them. False for what is no address. An
  // IPv4 address that is written as an IPv6 one ("::ffff:10.0.0.3") counts as the IPv4 address.
  bool Contains(const std::string& address) const;

 private:
  std::vector<std::string> networks_;  // all in CIDR notation
};

// Whether `host` is this machine alone, whatever the network says: "localhost", or an address in
// 127.0.0.0/8 or ::1, "[::1]" too. Other names are not looked up, and are not.
//
//   IsLoopbackName("127.0.0.1")  // true
bool IsLoopbackName(const std::string& host);

}  // namespace poseidon
