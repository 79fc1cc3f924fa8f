#include "transport/zmq/zmq_connections.h"

#include <cstdint>
#include <cstring>
#include <utility>

namespace poseidon {
namespace {

// Starts ZeroMQ's monitor of `receiver` and connects to it.
zmq::socket_t Monitor(zmq::context_t& context, zmq::socket_t& receiver, int lane) {
  const std::string name = "inproc://connections-" + std::to_string(lane);
  if (zmq_socket_monitor(receiver.handle(), name.c_str(), ZMQ_EVENT_DISCONNECTED) != 0) {
    throw zmq::error_t();
  }
  zmq::socket_t events(context, zmq::socket_type::pair);
  events.set(zmq::sockopt::linger, 0);
  // No limit: at a limit the I/O thread itself would wait for the lane.
  events.set(zmq::sockopt::rcvhwm, 0);
  events.connect(name);
  return events;
}

}  // namespace

ZmqConnections::ZmqConnections(zmq::context_t& context, zmq::socket_t& receiver, int lane,
                               TransportCounters& counters)
    : receiver_(receiver),
      counters_(counters),
      events_(Monitor(context, receiver, lane)),
      fd_(events_.get(zmq::sockopt::fd)) {
  // ZeroMQ makes the descriptor readable only for those who have looked and found nothing.
  Collect();
}

ZmqConnections::~ZmqConnections() { zmq_socket_monitor(receiver_.handle(), nullptr, 0); }

void ZmqConnections::Spoke(zmq::message_t& frame) { spoke_.insert(frame.get(ZMQ_SRCFD)); }

bool ZmqConnections::Complained(zmq::message_t& frame) {
  return complained_.insert(PeerHost(frame)).second;
}

void ZmqConnections::Collect() {
  // An event is two frames: number (16 bits) and value (32 bits, here the file descriptor), and the
  // endpoint.
  zmq::message_t event;
  zmq::message_t endpoint;
  while (events_.recv(event, zmq::recv_flags::dontwait)) {
    if (event.more()) (void)events_.recv(endpoint, zmq::recv_flags::dontwait);
    int32_t descriptor = -1;
    if (event.size() < sizeof(uint16_t) + sizeof(descriptor)) continue;
    std::memcpy(&descriptor, event.data<std::byte>() + sizeof(uint16_t), sizeof(descriptor));
    ended_.push_back(descriptor);
  }
}

void ZmqConnections::Judge() {
  for (const int descriptor : std::exchange(ended_, {})) {
    if (spoke_.erase(descriptor) == 0) ++counters_.rejected_connections;
  }
}

std::string PeerHost(zmq::message_t& frame) {
  const char* host = frame.gets("Peer-Address");
  return host == nullptr ? "an unknown host" : host;
}

}  // namespace poseidon
