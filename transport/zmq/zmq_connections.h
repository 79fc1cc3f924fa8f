// Which connections of a lane's ROUTER ever said something of use.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>
#include <zmq.hpp>

#include "transport/counters.h"
#include "transport/logged_peers.h"
#include "transport/zmq/zmq_monitor.h"

namespace poseidon {

// Counts connections that end without having delivered one good frame: those are the ones that do
// not speak ZeroMQ, fail its handshake or start with a frame over the size limit. ZeroMQ closes
// them and does not say why. (A node of ours connects only when it has something to send, so it
// delivers a frame unless it dies in between.)
//
// Belongs to the lane's thread.
class ZmqConnections {
 public:
  // Watches `receiver`, which must not be bound yet and must outlive this.
  ZmqConnections(zmq::context_t& context, zmq::socket_t& receiver, TransportCounters& counters);

  // A good frame has arrived; `frame` is any part of the message.
  void Spoke(zmq::message_t& frame);
  // A bad one. True: it is the first of this host, so worth a line in the log.
  bool Complained(zmq::message_t& frame);

  // Fetches all news, and logs the first handshake that has failed. Then, once the receiver has
  // been seen empty, all frames of connections that had ended by then are in, and Judge() may
  // count.
  void Collect();
  void Judge();

  // Readable when there is news that Collect() has not fetched.
  int fd() const { return events_.fd(); }

 private:
  TransportCounters& counters_;
  ZmqMonitor events_;
  std::unordered_set<int> spoke_;  // file descriptors, ZeroMQ's only name for a connection
  std::vector<int> ended_;
  // Of each kind the first is logged: a health check must not hide who has another key.
  bool told_of_turned_away_ = false;
  bool told_of_silent_ = false;
  LoggedPeers<std::string> complained_;  // hosts
};

// The host that sent a frame, "10.0.0.3".
std::string PeerHost(zmq::message_t& frame);

}  // namespace poseidon
