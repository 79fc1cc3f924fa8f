#include "proto/loopback.h"

#include <arpa/inet.h>

namespace poseidon {

bool IsLoopbackName(const std::string& host) {
  if (host == "localhost") return true;
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string address = bracketed ? host.substr(1, host.size() - 2) : host;
  in6_addr six{};
  if (inet_pton(AF_INET6, address.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  in_addr four{};
  constexpr uint32_t kLoopbackNetwork = 127;
  return inet_pton(AF_INET, host.c_str(), &four) == 1 &&
         ntohl(four.s_addr) >> 24 == kLoopbackNetwork;
}

}  // namespace poseidon
