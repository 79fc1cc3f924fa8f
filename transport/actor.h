// Actor: a protocol as a plain object, without thread, socket, clock or random source.
//
// A runtime calls an actor with a message or a timer, always one call at a time; the actor answers
// by filling an Outbox, which the runtime carries out after the call returns. Nothing an actor does
// can block. The same actors run on ZmqRuntime (real sockets) and SimRuntime (virtual time).
//
// Long arithmetic does not keep messages waiting: an actor leaves it in the outbox as Work, cut
// into slices, and the runtime carries on with it between messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/arithmetic/sliced_arithmetic.h"
#include "core/time.h"
#include "transport/envelope.h"

namespace poseidon {

class Actor;
struct Outbox;

// Which of an actor's timers; the actor chooses the numbers.
using TimerId = int64_t;

// Arithmetic that an actor has left for later. Its parts are carried out one after the other, slice
// by slice; then `done` is called as OnMessage would be. Between slices the actor gets what has
// come, and work that is more urgent goes first. What is left of it when another actor takes the
// lane is carried out before; it is dropped with a node that ends or an actor that has thrown. What
// it captures must live as long as the actor.
//
//     outbox.work.push_back({.priority = 3, .parts = {rebuild, update},
//                            .done = [this](Outbox& outbox) { SendAnswers(outbox); }});
struct Work {
  int64_t priority = 0;  // as an envelope's: smaller first; among equals first come, first served
  std::vector<SlicedArithmetic> parts;
  std::function<void(Outbox&)> done;
};

// What an actor wants done, and what time it is. A value: tests make one, call the actor and look.
struct Outbox {
  struct Timer {
    TimerId id = 0;
    // From now; setting a timer that is already set moves it. nullopt cancels it.
    std::optional<Duration> delay;
  };
  struct Route {
    Address to;
    std::string endpoint;
    // A connection ends, and is made anew, once the machine at the other end has confirmed nothing
    // of what is sent for so long. nullopt: when the kernel gives up, in a quarter of an hour.
    std::optional<Duration> lost_after = std::nullopt;
    // With that: the lane that sends there then hears kConnectionLost, if it was connected. A
    // process that ends there closes its connections, and is not told of.
    bool tells_loss = false;
  };
  struct Attachment {
    int lane = 0;
    std::unique_ptr<Actor> actor;
  };

  // When the message or timer that is being handled arrived.
  Time now{};

  // Carried out in this order: identity, window, dropping, routes, attachments, messages, timers;
  // work last, when there is nothing else to do.
  std::optional<NodeId> identity;  // the scheduler told this node who it is
  // Bytes of bodies on the way to each peer, from now on, before the rest wait in the priority
  // queue; without effect in virtual time, where nothing waits in sockets.
  std::optional<int64_t> window_bytes;
  // What this lane has queued for other nodes, and not begun to send, is of no use to anybody any
  // more. Without effect in virtual time.
  bool drop_queued = false;
  std::vector<Route> routes;  // where another node's lane can be reached from now on
  // Likewise, for all nodes of a job, of which this may be one, and the same object for each of
  // them (transport/membership/shared_messages.h): in virtual time only, where one table then
  // serves all.
  std::shared_ptr<const std::vector<Route>> shared_routes;
  std::vector<Attachment> attachments;  // actors to start on other lanes of this node
  std::vector<Envelope> messages;
  std::vector<Timer> timers;
  std::vector<Work> work;

  void Send(Envelope envelope) { messages.push_back(std::move(envelope)); }
  void SetTimer(TimerId id, Duration delay) { timers.push_back({id, delay}); }
  void CancelTimer(TimerId id) { timers.push_back({id, std::nullopt}); }
  void Attach(int lane, std::unique_ptr<Actor> actor);
  // Forgets everything but `now` and keeps the vectors' memory.
  void Clear();
};

class Actor {
 public:
  virtual ~Actor() = default;
  // Once, before anything else, on the lane that will run it.
  virtual void OnStart(Outbox& outbox) { (void)outbox; }
  virtual void OnMessage(const Envelope& envelope, Outbox& outbox) = 0;
  virtual void OnTimer(TimerId timer, Outbox& outbox) {
    (void)timer;
    (void)outbox;
  }
};

}  // namespace poseidon
