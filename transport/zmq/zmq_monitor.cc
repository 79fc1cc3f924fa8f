#include "transport/zmq/zmq_monitor.h"

#include <cstddef>
#include <cstring>
#include <string>

namespace poseidon {
namespace {

zmq::socket_t Watch(zmq::context_t& context, zmq::socket_t& socket, int events) {
  // No other socket that is open has this handle.
  const std::string name =
      "inproc://monitor-" + std::to_string(reinterpret_cast<uintptr_t>(socket.handle()));
  if (zmq_socket_monitor(socket.handle(), name.c_str(), events) != 0) throw zmq::error_t();
  zmq::socket_t reader(context, zmq::socket_type::pair);
  reader.set(zmq::sockopt::linger, 0);
  // No limit: at a limit ZeroMQ's I/O thread itself would wait for the reader.
  reader.set(zmq::sockopt::rcvhwm, 0);
  reader.connect(name);
  return reader;
}

}  // namespace

ZmqMonitor::ZmqMonitor(zmq::context_t& context, zmq::socket_t& socket, int events)
    : socket_(socket),
      events_(Watch(context, socket, events)),
      fd_(events_.get(zmq::sockopt::fd)) {}

ZmqMonitor::~ZmqMonitor() { zmq_socket_monitor(socket_.handle(), nullptr, 0); }

std::optional<ZmqMonitor::Event> ZmqMonitor::Next() {
  // An event is two frames: kind (16 bits) and value (32 bits), and the endpoint.
  zmq::message_t head;
  zmq::message_t endpoint;
  while (events_.recv(head, zmq::recv_flags::dontwait)) {
    if (head.more()) (void)events_.recv(endpoint, zmq::recv_flags::dontwait);
    Event event;
    if (head.size() < sizeof(event.kind) + sizeof(event.value)) continue;
    const std::byte* const bytes = head.data<std::byte>();
    std::memcpy(&event.kind, bytes, sizeof(event.kind));
    std::memcpy(&event.value, bytes + sizeof(event.kind), sizeof(event.value));
    return event;
  }
  return std::nullopt;
}

}  // namespace poseidon
