// What the tests of answers over HTTP connect with.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "core/steady_now.h"
#include "core/time.h"

namespace poseidon {

// A connection that a test speaks byte by byte.
class HttpClient {
 public:
  // `waits`: until it is connected, which it may never be where many others are.
  explicit HttpClient(int port, bool waits = true)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 &&
        errno != EINPROGRESS) {
      throw std::system_error(errno, std::generic_category(), "connect");
    }
    pollfd connected{socket_, POLLOUT, 0};
    if (waits) poll(&connected, 1, 10000);
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient() { close(socket_); }

  void Send(const std::string& text) const {
    send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
  }
  // Until `mark` is there or the other side closes.
  std::string Read(const std::string& mark = "") {
    const Time deadline = SteadyNow() + kPatience;
    while (SteadyNow() < deadline && (mark.empty() || text_.find(mark) == std::string::npos)) {
      pollfd waited{socket_, POLLIN, 0};
      if (poll(&waited, 1, 1000) <= 0) continue;
      char buffer[4096];
      const ssize_t size = recv(socket_, buffer, sizeof buffer, 0);
      if (size <= 0) break;
      text_.append(buffer, static_cast<size_t>(size));
    }
    return text_;
  }

 private:
  static constexpr Duration kPatience = Seconds(30);

  int socket_;
  std::string text_;
};

}  // namespace poseidon
