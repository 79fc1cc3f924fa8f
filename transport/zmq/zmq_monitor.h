// What happens to a ZeroMQ socket's connections.
#pragma once

#include <cstdint>
#include <optional>
#include <zmq.hpp>

namespace poseidon {

// Belongs to the thread that uses the socket.
class ZmqMonitor {
 public:
  struct Event {
    uint16_t kind = 0;   // ZMQ_EVENT_*
    int32_t value = -1;  // by kind; mostly the connection's file descriptor
  };

  // Watches `socket`, which must be neither bound nor connected yet and must outlive this, for
  // `events`, a sum of ZMQ_EVENT_*. It takes two file descriptors.
  ZmqMonitor(zmq::context_t& context, zmq::socket_t& socket, int events);
  ~ZmqMonitor();
  ZmqMonitor(const ZmqMonitor&) = delete;
  ZmqMonitor& operator=(const ZmqMonitor&) = delete;

  // The oldest event that has not been fetched yet; none if there is none.
  std::optional<Event> Next();

  // Readable when there is an event that Next() has not fetched, after it has once found nothing.
  int fd() const { return fd_; }

 private:
  zmq::socket_t& socket_;
  zmq::socket_t events_;
  const int fd_;
};

}  // namespace poseidon
