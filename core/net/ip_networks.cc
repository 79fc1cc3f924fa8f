#include "core/net/ip_networks.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <optional>

#include "core/error.h"

namespace poseidon {
namespace {

namespace ip = boost::asio::ip;

std::optional<ip::address> ParseAddress(const std::string& text) {
  boost::system::error_code error;
  const ip::address address = ip::make_address(text, error);
  if (error) return std::nullopt;
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return ip::make_address_v4(ip::v4_mapped, address.to_v6());
  }
  return address;
}

// A single address as the network that has no other.
std::string WithLength(const std::string& network) {
  if (network.find('/') != std::string::npos) return network;
  const auto address = ParseAddress(network);
  if (!address) return network;
  return address->to_string() + (address->is_v4() ? "/32" : "/128");
}

bool IsNetwork(const std::string& text) {
  boost::system::error_code not_v4;
  boost::system::error_code not_v6;
  ip::make_network_v4(text, not_v4);
  ip::make_network_v6(text, not_v6);
  return !not_v4 || !not_v6;
}

bool InNetwork(const ip::address& address, const std::string& network) {
  boost::system::error_code error;
  if (address.is_v4()) {
    const auto all = ip::make_network_v4(network, error);
    const ip::network_v4 one(address.to_v4(), 32);
    return !error && (one == all || one.is_subnet_of(all.canonical()));
  }
  const auto all = ip::make_network_v6(network, error);
  const ip::network_v6 one(address.to_v6(), 128);
  return !error && (one == all || one.is_subnet_of(all.canonical()));
}

}  // namespace

IpNetworks::IpNetworks(const std::vector<std::string>& networks) {
  for (const std::string& network : networks) {
    networks_.push_back(WithLength(network));
    if (!IsNetwork(networks_.back())) {
      throw ConfigError("\"" + network +
                        "\" is no network; write an address and how many of its bits count, as in "
                        "\"10.0.0.0/8\" or \"fd00::/8\", or a single address");
    }
  }
}

bool IpNetworks::Contains(const std::string& address) const {
  const auto parsed = ParseAddress(address);
  return parsed && std::any_of(networks_.begin(), networks_.end(), [&](const std::string& network) {
           return InNetwork(*parsed, network);
         });
}

bool IsLoopbackName(const std::string& host) {
  if (host == "localhost") return true;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto parsed = ParseAddress(bracketed ? host.substr(1, host.size() - 2) : host);
  return parsed && parsed->is_loopback();
}

}  // namespace poseidon
