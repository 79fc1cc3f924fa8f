#include "transport/zmq/zmq_connections.h"

#include <glog/logging.h>

#include <optional>
#include <utility>

namespace poseidon {
ZmqConnections::ZmqConnections(zmq::context_t& context, zmq::socket_t& receiver,
                               TransportCounters& counters)
    : counters_(counters),
      events_(context, receiver, ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
  // ZeroMQ makes the descriptor readable only for those who have looked and found nothing.
  Collect();
}

void ZmqConnections::Spoke(zmq::message_t& frame) { spoke_.insert(frame.get(ZMQ_SRCFD)); }

bool ZmqConnections::Complained(zmq::message_t& frame) {
  return complained_.IsNew(PeerHost(frame));
}

void ZmqConnections::Collect() {
  while (const std::optional<ZmqMonitor::Event> event = events_.Next()) {
    if (event->kind == ZMQ_EVENT_DISCONNECTED) {
      ended_.push_back(event->value);
    } else if (!std::exchange(told_of_turned_away_, true)) {
      LOG(WARNING)
          << "turned away a connection that does not speak ZeroMQ, has another key than this "
             "job or none (security.key_file), or is of another build; further ones are only "
             "counted";
    }
  }
}

void ZmqConnections::Judge() {
  for (const int descriptor : std::exchange(ended_, {})) {
    if (spoke_.erase(descriptor) > 0) continue;
    ++counters_.rejected_connections;
    if (std::exchange(told_of_silent_, true)) continue;
    LOG(WARNING) << "a connection has ended on which nothing of this job came, as those of port "
                    "scanners and health checks do; further ones are only counted";
  }
}

std::string PeerHost(zmq::message_t& frame) {
  const char* host = frame.gets("Peer-Address");
  return host == nullptr ? "an unknown host" : host;
}

}  // namespace poseidon
