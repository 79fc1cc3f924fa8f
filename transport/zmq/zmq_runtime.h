// ZmqRuntime: carries one node's actors on real threads, ZeroMQ sockets and the steady clock.
//
// Every lane is one thread with one ROUTER socket, bound to a port of its own, on which it
// receives, and one DEALER socket per lane of another node that it has sent to. Before each DEALER
// stands a priority queue (Envelope.priority, then first come first served); only `window_bytes`
// are handed to the socket and not yet taken by the kernel, so that an urgent chunk overtakes all
// that still queue. Bodies of 64 KiB and more go out without a copy (the frame keeps the payload's
// owner alive until the kernel has it); smaller ones are copied when they go out, which frees their
// owner sooner. Received bodies are the frames themselves.
//
// What the node itself sent to a lane (an actor to attach, a route, an envelope) before a frame
// arrived there is handled before that frame. Timers never fire early and up to a millisecond late.
//
// An actor that throws poseidon::Error (or another std::exception) is destroyed, what it had in its
// outbox is forgotten, and the application gets a kFailed with a wire::End, exit code and what(),
// from the actor's lane. To send an envelope longer than `max_frame_bytes` counts as such an error.
// A route to what is not an endpoint is logged and forgotten: endpoints come from other nodes.
//
// Work (transport/actor.h) is carried out a slice a turn: after each the lane handles what has
// come, up to 64 messages, and the timers that are due.
//
// What arrives from the network is checked before any actor sees it: see TransportCounters. Bad
// frames are logged once per host and lane.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "transport/actor.h"
#include "transport/counters.h"
#include "transport/events/event_file.h"
#include "transport/mailbox.h"
#include "transport/zmq/zmq_options.h"

namespace poseidon {

// Thread safety: Start, Attach, SetRoute and Stop belong to one thread; Post, endpoint and counters
// may be used from any thread.
class ZmqRuntime {
 public:
  // Binds all lanes' sockets; throws ConfigError naming the port if one is in use or not allowed,
  // and Error if the system allows fewer threads or files than it needs. `self` may have rank -1;
  // an actor's Outbox.identity changes it.
  ZmqRuntime(NodeId self, const ZmqOptions& options);
  // Stop().
  ~ZmqRuntime();
  ZmqRuntime(const ZmqRuntime&) = delete;
  ZmqRuntime& operator=(const ZmqRuntime&) = delete;

  // "tcp://host:port" of one of this node's lanes.
  std::string endpoint(int lane) const;
  // All lanes' endpoints in the order of lanes, as wire::Node has them.
  std::vector<std::string> endpoints() const;

  // Gives a lane its actor in the place of an earlier one; may be called before or after Start. A
  // frame that arrives at a lane without actor is counted as malformed and dropped.
  void Attach(int lane, std::unique_ptr<Actor> actor);
  // Makes another node's lane reachable.
  void SetRoute(const Address& to, const std::string& endpoint);

  // Starts the lanes' threads.
  void Start();
  // Ends the threads, closes the sockets and destroys the actors. What was posted before is still
  // handled, and what is queued for other nodes is sent, all for at most `linger`; no more frames
  // are received and no timers fire meanwhile. When it returns, all payloads are released, sent or
  // not, except those in the mailbox. Never waits for a peer for longer. Idempotent.
  void Stop();

  // An envelope from the application: to an actor of this node (Here(lane)) or to another node,
  // which sees this node's application lane as its sender. After Stop it is dropped.
  void Post(Envelope envelope);
  // What actors send to Here(kApplicationLane).
  Mailbox& mailbox();

  const TransportCounters& counters() const;

  // Has `observer` see each envelope for the mailbox first, in the thread that sends it, so that
  // what must not wait for the application is done. The application and the lane wait for it
  // meanwhile, so it must not block. Before Start.
  void Observe(std::function<void(const Envelope&)> observer);

  // Notes what the program does from now on. Belongs to one thread. `layer`: that is waited for.
  void Note(Activity activity, int64_t iteration, int layer = 0);
  // What the node has kept of the last frames and activities (ZmqOptions.kept_events), and how its
  // connections to others are; they are none once it has stopped. Of the rest of an EventFile, the
  // node and the time. From any thread.
  EventFile Events() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace poseidon
