// ZmqRuntime: carries one node's actors on real threads, ZeroMQ sockets and the steady clock.
//
// Every lane is one thread with one ROUTER socket, bound to a port of its own, on which it receives,
// and one DEALER socket per peer lane, on which it sends. Before each DEALER stands a priority queue
// (Envelope.priority, then first come first served); only `window_bytes` of bodies are handed to the
// socket and not yet taken by the kernel, so that an urgent chunk overtakes all that still queue.
// Bodies of 64 KiB and more go out without a copy (the frame keeps the payload's owner alive until
// the kernel has it); smaller ones are copied, which is cheaper.
//
// What arrives from the network is checked before any actor sees it: see TransportCounters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/actor.h"
#include "transport/counters.h"
#include "transport/mailbox.h"
#include "transport/zmq_options.h"

namespace poseidon {

// Thread safety: Start, Attach, SetRoute and Stop belong to one thread; Post, endpoint and counters
// may be used from any thread.
class ZmqRuntime {
 public:
  // Binds all lanes' sockets; throws ConfigError naming the port if one is in use or not allowed.
  // `self` may have rank -1; an actor's Outbox.identity changes it.
  ZmqRuntime(NodeId self, const ZmqOptions& options);
  // Stop().
  ~ZmqRuntime();
  ZmqRuntime(const ZmqRuntime&) = delete;
  ZmqRuntime& operator=(const ZmqRuntime&) = delete;

  // "tcp://host:port" of one of this node's lanes.
  std::string endpoint(int lane) const;
  // All lanes' endpoints in the order of lanes, as wire::Node has them.
  std::vector<std::string> endpoints() const;

  // Gives a lane its actor; may be called before or after Start. A frame that arrives at a lane
  // without actor is counted as malformed and dropped.
  void Attach(int lane, std::unique_ptr<Actor> actor);
  // Makes another node's lane reachable.
  void SetRoute(const Address& to, const std::string& endpoint);

  // Starts the lanes' threads.
  void Start();
  // Sends what is queued for at most `linger`, ends the threads, closes the sockets and drops the
  // actors. Payloads in flight are released. Idempotent.
  void Stop();

  // An envelope from the application: to an actor of this node (Here(lane)) or to another node.
  void Post(Envelope envelope);
  // What actors send to Here(kApplicationLane).
  Mailbox& mailbox();

  const TransportCounters& counters() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace poseidon
