// What the lanes of one node share.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "transport/counters.h"
#include "transport/events/node_event.h"
#include "transport/mailbox.h"
#include "transport/zmq/zmq_inbox.h"
#include "transport/zmq/zmq_options.h"

namespace poseidon {

// Thread-safe after construction.
class ZmqNode {
 public:
  ZmqNode(NodeId self, const ZmqOptions& node_options);

  // To an address of this node: one of its lanes or the application. CHECKs that there is such a
  // lane.
  void Deliver(Envelope envelope);
  // To all lanes but `origin`, if that is one. A lane that gets an envelope afterwards, from
  // whoever saw this return, knows the route.
  void AddRoute(const Outbox::Route& route, int origin);
  void Attach(int lane, std::unique_ptr<Actor> actor);

  // Where other nodes' lanes can be reached, as the last routes have it.
  std::map<Address, std::string> endpoints() const;

  NodeId identity() const;
  void SetIdentity(NodeId self);

  const ZmqOptions options;
  // The window of every peer; options.window_bytes at first.
  const std::shared_ptr<std::atomic<int64_t>> window_bytes;
  zmq::context_t context;  // before everything that has a socket
  TransportCounters counters;
  Mailbox mailbox;
  std::vector<std::unique_ptr<ZmqInbox>> inboxes;  // by lane
  std::vector<std::unique_ptr<EventRing>> events;  // likewise
  EventRing activities;                            // of the program
  // Sees what is about to be the application's; set before any lane runs. May be empty. Does not
  // block. What it throws is logged.
  std::function<void(const Envelope&)> observer;

 private:
  void Show(const Envelope& envelope) const;  // to the observer

  mutable std::mutex mutex_;
  std::map<Address, std::string> endpoints_;
  std::atomic<uint64_t> identity_;  // a NodeId: as such it would need a lock with some compilers
};

}  // namespace poseidon
