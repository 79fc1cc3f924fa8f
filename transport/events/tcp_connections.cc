#include "transport/events/tcp_connections.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

namespace poseidon {
namespace {

namespace ip = boost::asio::ip;

// Of include/net/tcp_states.h.
constexpr uint64_t kEstablished = 1;
constexpr uint64_t kSynSent = 2;
constexpr uint64_t kListen = 10;

// Of the column "tr": which timer runs.
constexpr uint64_t kWindowProbeTimer = 4;

std::optional<uint64_t> Number(std::string_view text, int base) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// "0100007F", or four of them for an IPv6 address: words in the machine's order, whose bytes are
// the other way round.
std::string AddressText(std::string_view hexadecimal) {
  constexpr size_t kDigits = 8;
  ip::address_v6::bytes_type bytes{};
  const size_t words = hexadecimal.size() / kDigits;
  if (words != 1 && words != 4) return "";
  for (size_t i = 0; i < words; ++i) {
    const auto word = Number(hexadecimal.substr(i * kDigits, kDigits), 16);
    if (!word) return "";
    for (size_t byte = 0; byte < 4; ++byte) {
      bytes[4 * i + byte] = static_cast<unsigned char>(*word >> (8 * byte) & 0xff);
    }
  }
  if (words == 1) {
    return ip::address_v4(ip::address_v4::bytes_type{bytes[0], bytes[1], bytes[2], bytes[3]})
        .to_string();
  }
  const ip::address_v6 address(bytes);
  // An IPv4 peer of a socket that takes both.
  return address.is_v4_mapped() ? ip::make_address_v4(ip::v4_mapped, address).to_string()
                                : address.to_string();
}

// The part before the colon and the part behind it.
std::pair<std::string, std::string> AtColon(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {text, ""};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

TcpConnection::State StateOf(uint64_t state) {
  if (state == kEstablished) return TcpConnection::State::kEstablished;
  if (state == kSynSent) return TcpConnection::State::kConnecting;
  return TcpConnection::State::kClosing;
}

std::optional<TcpConnection> ParseLine(const std::string& line,
                                       const std::vector<uint64_t>& inodes) {
  std::istringstream stream(line);
  std::string slot, local, remote, state, queues, timer, retransmissions, user, timeout, inode;
  stream >> slot >> local >> remote >> state >> queues >> timer >> retransmissions >> user >>
      timeout >> inode;
  const auto number = Number(inode, 10);
  const auto state_number = Number(state, 16);
  const auto port = Number(AtColon(remote).second, 16);
  if (!number || !state_number || !port || *state_number == kListen) return std::nullopt;
  if (std::ranges::find(inodes, *number) == inodes.end()) return std::nullopt;
  TcpConnection connection;
  connection.address = AddressText(AtColon(remote).first);
  connection.port = static_cast<int>(*port);
  connection.state = StateOf(*state_number);
  connection.unconfirmed_bytes =
      static_cast<int64_t>(Number(AtColon(queues).first, 16).value_or(0));
  connection.retransmissions = static_cast<int>(Number(retransmissions, 16).value_or(0));
  connection.window_closed = Number(AtColon(timer).first, 16) == kWindowProbeTimer;
  return connection;
}

std::vector<uint64_t> OwnSocketInodes() {
  constexpr std::string_view kSocket = "socket:[";
  std::vector<uint64_t> inodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (gone || !target.starts_with(kSocket)) continue;
    const auto number = Number(
        std::string_view(target).substr(kSocket.size(), target.size() - kSocket.size() - 1), 10);
    if (number) inodes.push_back(*number);
  }
  return inodes;
}

}  // namespace

std::vector<TcpConnection> ParseTcpTable(const std::string& table,
                                         const std::vector<uint64_t>& inodes) {
  std::vector<TcpConnection> connections;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (auto connection = ParseLine(line, inodes)) connections.push_back(std::move(*connection));
  }
  return connections;
}

std::vector<TcpConnection> OwnTcpConnections() {
  const std::vector<uint64_t> inodes = OwnSocketInodes();
  std::vector<TcpConnection> connections;
  for (const char* const path : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    std::ranges::move(ParseTcpTable(text.str(), inodes), std::back_inserter(connections));
  }
  return connections;
}

}  // namespace poseidon
