#include "transport/zmq/zmq_connections.h"

#include <optional>
#include <utility>

namespace poseidon {
ZmqConnections::ZmqConnections(zmq::context_t& context, zmq::socket_t& receiver,
                               TransportCounters& counters)
    : counters_(counters), events_(context, receiver, ZMQ_EVENT_DISCONNECTED) {
  // ZeroMQ makes the descriptor readable only for those who have looked and found nothing.
  Collect();
}

void ZmqConnections::Spoke(zmq::message_t& frame) { spoke_.insert(frame.get(ZMQ_SRCFD)); }

bool ZmqConnections::Complained(zmq::message_t& frame) {
  return complained_.insert(PeerHost(frame)).second;
}

void ZmqConnections::Collect() {
  while (const std::optional<ZmqMonitor::Event> event = events_.Next()) {
    ended_.push_back(event->value);
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
