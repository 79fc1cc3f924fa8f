// One lane of a node: a thread with a ROUTER on which it receives, a peer for each lane that it
// sends to, and an actor.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/error.h"
#include "transport/actor.h"
#include "transport/work_queue.h"
#include "transport/zmq/zmq_connections.h"
#include "transport/zmq/zmq_node.h"
#include "transport/zmq/zmq_peer.h"
#include "transport/zmq/zmq_timers.h"

namespace poseidon {

// The order that actors can count on: everything that the node itself sent to this lane (an actor
// to attach, a route, an envelope) before a frame arrived is handled before that frame. So an actor
// that was attached before its node said "ready" to a peer is there when the peer's first frame
// comes.
//
// Construction, Start and Join belong to the runtime's thread.
class ZmqLane {
 public:
  // Binds to `port`, 0 for any. Throws ConfigError.
  ZmqLane(ZmqNode& node, int lane, int port);
  ZmqLane(const ZmqLane&) = delete;
  ZmqLane& operator=(const ZmqLane&) = delete;

  int port() const { return port_; }
  // Runs until its inbox's waker is stopped; then sends what is queued, for at most
  // ZmqOptions.linger.
  void Start();
  // Waits for that.
  void Join();

 private:
  // A message of ours is the sender's routing id (ZeroMQ puts it there), a header and perhaps a
  // body.
  struct Message {
    zmq::message_t routing_id;
    zmq::message_t header;
    zmq::message_t body;
    int frames = 0;
  };

  void Run();
  void Turn();
  void Finish();
  // What has come while the lane slept.
  struct Readable {
    bool receiver = false;
    bool connections = false;
    bool watched = false;
  };
  // Sleeps in poll until something happens, at most `limit` (negative: for ever).
  Readable Sleep(std::chrono::milliseconds limit);
  // Until a timer fires, or what is unfinished is tried again. Negative: there is neither.
  std::chrono::milliseconds UntilNextDue() const;

  // If the lane was woken: what is in the inbox, then what the windows have room for.
  void Service();
  void Handle(ZmqInbox::Item& item);
  void HandleEnvelope(Envelope envelope);
  void SetRoute(const Outbox::Route& route);
  // Tells the actor of watched peers whose connection is lost.
  void TellOfLosses();

  // Handles a bounded number of messages. True: the socket has no more.
  bool Receive();
  bool ReceiveMessage(Message& message);
  void HandleMessage(Message& message);
  void Drop(Message& message, const std::string& fault);

  void FireTimers();
  // Carries out a slice of what the actor has left to do, if there is any.
  void CarryOnWork();

  // Calls the actor and carries out what it wants. An actor that throws is not called again.
  template <typename Call>
  void CallActor(Call call);
  // Exceptions become kFailed for the application; false: there was one.
  template <typename Call>
  bool Guarded(Call call);
  void ReportFailure(ExitCode exit_code, const std::string& reason);
  void CarryOut();

  void Send(Envelope envelope);
  // The peer at an address; null without a route to it, or if the route's endpoint is none.
  ZmqPeer* FindPeer(const Address& to);
  // Endpoints come from other nodes: a bad one is no reason for this lane to fail.
  void ReportBadEndpoint(const Address& to, const ProtocolError& error);
  void PumpUnfinished();
  // Once in kReplaceAfter: nobody wakes the lane for a peer whose socket takes nothing.
  void RetryUnfinished();
  // The kernel has all that was sent to other nodes.
  bool idle() const;

  Address self() const { return {node_.identity(), lane_}; }

  ZmqNode& node_;
  const int lane_;
  ZmqInbox& inbox_;
  EventRing& events_;
  ZmqWaker& waker_;
  zmq::socket_t receiver_;
  const int receiver_fd_;
  ZmqConnections connections_;
  const int port_;
  std::unique_ptr<Actor> actor_;
  Outbox outbox_;
  ZmqTimers timers_;
  WorkQueue work_;
  std::unordered_map<Address, Outbox::Route, AddressHash> routes_;
  std::unordered_map<Address, std::unique_ptr<ZmqPeer>, AddressHash> peers_;
  std::vector<std::pair<Address, ZmqPeer*>> watched_;  // those whose routes have `tells_loss`
  std::vector<pollfd> polled_;                         // as Sleep fills it
  std::vector<ZmqPeer*> unfinished_;                   // those that have envelopes queued
  Time retried_{};                                     // when these were last tried again
  bool drained_ = false;                               // the receiver had no more messages
  std::thread thread_;
};

}  // namespace poseidon
