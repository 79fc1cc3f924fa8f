// What the lanes of one node share.
#pragma once

#include <atomic>
#include <memory>
#include <vector>
#include <zmq.hpp>

#include "transport/counters.h"
#include "transport/mailbox.h"
#include "transport/zmq_inbox.h"
#include "transport/zmq_options.h"

namespace poseidon {

// Thread-safe after construction.
struct ZmqNode {
  ZmqNode(NodeId self, const ZmqOptions& node_options);

  // To an address of this node: one of its lanes or the application. CHECKs that there is such a
  // lane.
  void Deliver(Envelope envelope);
  // To all lanes but `origin`, if that is one. A lane that gets an envelope afterwards, from
  // whoever saw this return, knows the route.
  void AddRoute(const Outbox::Route& route, int origin);
  void Attach(int lane, std::unique_ptr<Actor> actor);

  const ZmqOptions options;
  zmq::context_t context;  // before everything that has a socket
  std::atomic<NodeId> identity;
  std::atomic<bool> stopping{false};
  TransportCounters counters;
  Mailbox mailbox;
  std::vector<std::unique_ptr<ZmqInbox>> inboxes;  // by lane
};

}  // namespace poseidon
