#include "launch/port_pair.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <random>

#include "core/error.h"

namespace poseidon {
namespace {

void SharePort(int bound) {
  const int on = 1;
  setsockopt(bound, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
}

// A socket that has the port on all addresses, or the negative errno, which is EADDRINUSE if
// somebody else has it. `shared`: only if somebody else listens there.
int BoundTo(int port, bool shared) {
  const int bound = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bound < 0) return -errno;
  if (shared) SharePort(bound);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (bind(bound, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    const int failure = errno;
    close(bound);
    return -failure;
  }
  // Only now: with it a port that another pair has could be bound, too.
  SharePort(bound);
  return bound;
}

}  // namespace

bool IsPairTaken(int first) {
  for (const int port : {first, first + 1}) {
    const int probe = BoundTo(port, /*shared=*/true);
    if (probe == -EADDRINUSE) return true;
    if (probe >= 0) close(probe);
  }
  return false;
}

PortPair::PortPair() {
  std::random_device random;
  // Below Linux's range for outgoing connections (32768 up), so that none takes it meanwhile.
  constexpr unsigned kFirst = 20000;
  constexpr unsigned kPorts = 12000;
  constexpr int kMostAttempts = 1000;
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    if (Bind(static_cast<int>(kFirst + random() % kPorts))) return;
  }
  throw Error(ExitCode::kFailure, "found no free port for the scheduler");
}

PortPair::~PortPair() { Close(); }

bool PortPair::Bind(int first) {
  first_ = first;
  for (int i = 0; i < 2; ++i) {
    sockets_[i] = BoundTo(first + i, /*shared=*/false);
    if (sockets_[i] >= 0) continue;
    Close();
    return false;
  }
  return true;
}

void PortPair::Close() {
  for (int& one : sockets_) {
    if (one >= 0) close(one);
    one = -1;
  }
}

}  // namespace poseidon
