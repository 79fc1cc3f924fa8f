// Endpoints for tests and benchmarks that start nodes with known ports.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "core/random.h"

namespace poseidon {

// So many "127.0.0.1:port" that nobody listens on now. Drawn at random below the ports that the
// kernel hands out by itself (from 32768), or the lane of one node could take the port meant for
// the next; and below those of jobs (from 20000), whose scheduler may be away for a moment.
inline std::vector<std::string> FreeEndpoints(int count) {
  constexpr int kFirst = 10000;
  constexpr int kPorts = 10000;
  Random random(std::chrono::steady_clock::now().time_since_epoch().count() ^ getpid());
  std::vector<int> held;  // until all are known, so that none comes twice
  std::vector<std::string> endpoints;
  while (static_cast<int>(endpoints.size()) < count) {
    const int port = kFirst + static_cast<int>(random.Below(kPorts));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    held.push_back(socket(AF_INET, SOCK_STREAM, 0));
    if (bind(held.back(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
      endpoints.push_back("127.0.0.1:" + std::to_string(port));
    }
  }
  for (const int descriptor : held) close(descriptor);
  return endpoints;
}

}  // namespace poseidon
