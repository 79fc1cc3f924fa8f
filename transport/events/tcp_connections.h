// How the kernel sees this process's TCP connections: it knows of a peer's death, and of a network
// that confirms nothing, before any program does.
//
//   for (const TcpConnection& one : OwnTcpConnections()) ...
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poseidon {

struct TcpConnection {
  std::string address;  // the other end's, in numbers: "10.0.0.2", "fd00::2"
  int port = 0;
  enum class State { kEstablished, kConnecting, kClosing } state = State::kEstablished;
  int64_t unconfirmed_bytes = 0;  // sent, or still to be sent, and not confirmed by the other end
  // How often what is unconfirmed has been sent again without an answer; more than once is rare
  // where both machines run and the network between them is whole.
  int retransmissions = 0;
  // The other machine confirms, but its program takes nothing: the window is closed.
  bool window_closed = false;
};

// Of Linux's tables in /proc/self/net; none where they can't be read. An IPv6 address that stands
// for an IPv4 one is told as that.
std::vector<TcpConnection> OwnTcpConnections();

// Of such a table's text, of the sockets with one of the inodes. For OwnTcpConnections, and tests.
std::vector<TcpConnection> ParseTcpTable(const std::string& table,
                                         const std::vector<uint64_t>& inodes);

}  // namespace poseidon
