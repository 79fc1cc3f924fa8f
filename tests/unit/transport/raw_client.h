// What the tests of hostile peers connect with.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace poseidon {

// A TCP client without any protocol.
class RawClient {
 public:
  explicit RawClient(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port =
        htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawClient() { close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  // What a closed connection does not take is not missed.
  void Send(const std::string& bytes) {
    (void)!send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // Waits until so many bytes have come, and forgets them.
  bool Receive(size_t bytes) {
    BePatient();
    char byte;
    while (bytes > 0 && recv(fd_, &byte, 1, 0) == 1) --bytes;
    return bytes == 0;
  }
  // Waits until the other side has closed the connection.
  bool WaitForEnd() {
    BePatient();
    char buffer[4096];
    ssize_t got;
    do {
      got = recv(fd_, buffer, sizeof(buffer), 0);
    } while (got > 0);
    return got == 0 || errno == ECONNRESET;
  }

 private:
  void BePatient() const {
    const timeval patience{30, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }

  int fd_;
  bool connected_ = false;
};

}  // namespace poseidon
