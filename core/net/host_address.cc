#include "core/net/host_address.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/udp.hpp>
#include <charconv>
#include <vector>

#include "core/error.h"

namespace poseidon {
namespace {

namespace ip = boost::asio::ip;
using ip::udp;

// Any: connecting a UDP socket sends nothing.
constexpr unsigned short kAnyPort = 9;
constexpr int kMaxPort = 65535;

std::vector<ip::address> Resolve(const std::string& host, boost::system::error_code& error) {
  boost::asio::io_context context;
  udp::resolver resolver(context);
  std::vector<ip::address> addresses;
  for (const auto& found : resolver.resolve(WithoutBrackets(host), "", error)) {
    addresses.push_back(found.endpoint().address());
  }
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const ip::address& one) { return one.is_v4(); });
  return addresses;
}

}  // namespace

std::string ResolveHost(const std::string& host, const std::string& what) {
  boost::system::error_code error;
  const std::vector<ip::address> addresses = Resolve(host, error);
  if (addresses.empty()) {
    throw ConfigError("can't resolve " + what + " \"" + host + "\": " + error.message() +
                      "; name a machine that DNS or /etc/hosts has, or an address");
  }
  return addresses.front().to_string();
}

std::vector<std::string> AddressesOf(const std::string& host) {
  boost::system::error_code error;
  std::vector<std::string> addresses;
  for (const ip::address& one : Resolve(host, error)) addresses.push_back(one.to_string());
  return addresses;
}

std::optional<std::string> OwnAddressTowards(const std::string& address) {
  boost::system::error_code error;
  const udp::endpoint there(ip::make_address(WithoutBrackets(address), error), kAnyPort);
  boost::asio::io_context context;
  udp::socket probe(context);
  if (!error) probe.connect(there, error);
  if (error) return std::nullopt;
  const udp::endpoint own = probe.local_endpoint(error);
  if (error) return std::nullopt;
  return own.address().to_string();
}

bool IsOwnAddress(const std::string& host) {
  boost::system::error_code error;
  const std::vector<ip::address> addresses = Resolve(host, error);
  boost::asio::io_context context;
  return std::ranges::any_of(addresses, [&](const ip::address& address) {
    // Only an address of this machine can be bound.
    const udp::endpoint here(address, 0);
    udp::socket probe(context);
    boost::system::error_code failed;
    probe.open(here.protocol(), failed);
    if (!failed) probe.bind(here, failed);
    return !failed;
  });
}

std::string WithoutBrackets(const std::string& host) {
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return bracketed ? host.substr(1, host.size() - 2) : host;
}

bool IsIpAddress(const std::string& host) {
  boost::system::error_code error;
  ip::make_address(WithoutBrackets(host), error);
  return !error;
}

std::string CanonicalAddress(const std::string& host) {
  boost::system::error_code error;
  const ip::address address = ip::make_address(WithoutBrackets(host), error);
  return error ? host : address.to_string();
}

bool IsIpv6Address(const std::string& host) {
  boost::system::error_code error;
  const ip::address address = ip::make_address(WithoutBrackets(host), error);
  return !error && address.is_v6();
}

std::optional<HostAndPort> HostAndPort::Parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostAndPort parsed;
  const std::string host = text.substr(0, colon);
  parsed.host = WithoutBrackets(host);
  // "fd00::1:5000" may be an address as a whole.
  const bool ambiguous = host == parsed.host && host.find(':') != std::string::npos;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data() + colon + 1, end, parsed.port);
  const bool good = failure == std::errc() && rest == end && parsed.port > 0 &&
                    parsed.port <= kMaxPort && !ambiguous;
  return good ? std::optional(parsed) : std::nullopt;
}

std::string HostAndPort::ToString() const {
  const bool brackets = host.find(':') != std::string::npos && host.front() != '[';
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

}  // namespace poseidon
