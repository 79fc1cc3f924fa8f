// SimRuntime: carries the actors of a whole cluster in virtual time, in one thread.
//
// The network. Every machine has one NIC, a full-duplex pair of links which all its nodes and their
// lanes share. An envelope of n bytes (its body plus `header_bytes`) from machine A to machine B
//
//   waits at A until its connection takes it up, at `start`;
//   leaves A at its connection's share of A.goodput, and has left at `left`: n / A.goodput after
//   `start` where nothing else leaves;
//   is ready to enter at B at  ready = start + A.latency + max(0, n / A.goodput - n / B.goodput);
//   waits in B's ingress queue (by `ready`, first come first served) until what is before it is in;
//   keeps B's ingress busy for n / B.goodput; and has arrived then, or at  left + A.latency  if
//   that is later.
//
// `ready` is the earliest moment from which the envelope could pass B's ingress at its full speed
// without overtaking its own bytes. So an envelope that meets no other one arrives
//
//   start + A.latency + n / min(A.goodput, B.goodput)
//
// (cut-through: the size counts once, not at both ends); k senders to one receiver get a k-th of
// its goodput each; a slow receiver does not hold its sender back, for the network between them has
// room for everything; neither end of a NIC ever exceeds its goodput. What leaves slowly, because A
// sends much else, books B's ingress as if it did not: the time is B's, only earlier. Times are
// rounded up to whole nanoseconds.
//
// Waiting at A. Without a send buffer (NicSpec) one envelope leaves at a time, the most urgent of
// the machine first, of equally urgent ones the first that came; none is preempted. With one, each
// connection (from a node to a lane of another node) has a queue of its own, in that order, and a
// buffer of so many bytes that is filled from the queue, one envelope at least, and can't be
// overtaken: what programs have handed to their sockets and these to the kernel. One envelope of
// each connection leaves at a time, and all connections that have one get equal shares of the link
// at any time, whatever their priorities, as TCP's connections do.
//
// Groups. Machines may be the leaves of a tree of groups (GPUs in a host, hosts in a rack, racks in
// a data center), each with an uplink to what is around it: full-duplex, one queue each way, first
// come first served, that all machines in the group share. Around the outermost groups, and around
// machines without a group, there is one switch that is never the bottleneck. Between machines of
// one group nothing is crossed; else, between A's egress and B's ingress, the uplinks of A's groups
// up to the group that both are in, and those of B's groups downwards. A link that the envelope's
// first byte has reached takes it up as soon as it has taken up all before and is free, at `start`;
//
//   it is busy with the envelope for n / goodput, from `start` on;
//   the first byte reaches the next link at  start + latency;
//   the last byte does at  latency + max(start + n / goodput, when it reached this link).
//
// B's ingress is entered, as above, when the envelope can pass it without overtaking its last byte.
// So an envelope that meets no other one takes all latencies and n / the lowest goodput on its way.
// A link that is faster than one before it books its time early, before all bytes are there, and
// leaves the rest of that time to others; over any time it carries what its goodput allows, but for
// envelopes that are just passing. Queues are not bounded, and no sender is held back by them.
//
// Envelopes between nodes of one machine, and within a node, arrive at once and in order.
//
// Processing. If SimOptions.processing is set, a lane handles the envelopes that arrive at it one
// after the other, in the order of their arrival: each waits until the lane is free and then keeps
// it busy for processing(envelope). At the end of that the actor gets the envelope, so what it
// sends leaves then. Other lanes, OnStart and timers do not wait for a busy lane. An envelope whose
// node is killed before the end is lost.
//
// Work that an actor leaves (transport/actor.h) queues at its lane as an envelope does, a
// millisecond of it at a time, or one slice where that takes longer: so what arrives waits at most
// for that, and for what came before. Its slices take SimOptions.arithmetic, or no time.
//
// Repeatable: the same actors, calls and seed give the same run, event by event, on every machine;
// what happens at the same time happens in the order in which it was set off. Faults are drawn from
// the seed per envelope between nodes, of one machine too, when it begins to leave.
//
// Differences from ZmqRuntime, which an actor must not notice: delivered envelopes keep the `to`
// that their sender wrote; connections take no time; queues are not bounded. A watched connection
// (Outbox::Route::tells_loss) is lost when an envelope was dropped and none has arrived since, and
// the lane that has set the route hears of it.
//
// Not thread-safe; different SimRuntimes are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/time.h"
#include "transport/actor.h"
#include "transport/sim/sim_lane.h"

namespace poseidon {

struct NicSpec {
  double goodput_bytes_per_second = 5e9;             // each direction; 40 Gb/s
  Duration latency = std::chrono::microseconds(20);  // one way, added by the sender's side
  // Each connection's, at each node; 0: none. What a program's window and the kernel's buffer hold.
  int64_t send_buffer_bytes = 0;
};

// The uplink of a group of machines.
struct UplinkSpec {
  double goodput_bytes_per_second = 5e9;  // each direction
  Duration latency{};                     // one way: once upwards, once downwards
};

constexpr int kNoGroup = -1;

// Probabilities of faults, each drawn independently per envelope between nodes. A dropped envelope
// has used its sender's egress, a second arrival uses the receiver's ingress a second time.
struct FaultSpec {
  double drop = 0;
  double duplicate = 0;  // arrives a second time, up to max_delay later
  double delay = 0;      // is held back for a random time up to max_delay, so others overtake
  Duration max_delay = std::chrono::milliseconds(10);
};

struct SimOptions {
  uint64_t seed = 1;
  // Wire bytes of an envelope besides its body: frame header and ZeroMQ and TCP framing.
  int64_t header_bytes = 64;
  FaultSpec faults;
  // If set, only envelopes for which it is true suffer faults.
  std::function<bool(const Envelope&)> fault_filter;
  // How long the lane that gets an envelope is busy with it; not negative. Of all envelopes, those
  // within a node, too, which alone have kThisNode as the role that `to` names. It is called once
  // for each, when it arrives, with `to` as its sender wrote it. Empty: nothing takes time.
  std::function<Duration(const Envelope&)> processing;
  // How long a slice of work takes; not negative. Empty: no time.
  std::function<Duration(const ArithmeticAmount&)> arithmetic;
  // Asked for each actor that a lane is given; what it returns takes the actor's place: one around
  // it that sees, or changes, what it gets and sends. Empty: the actor itself.
  std::function<std::unique_ptr<Actor>(SimNode node, int lane, std::unique_ptr<Actor> actor)> wrap;
};

// Every envelope between nodes that arrives or fails to, and every copy of one that a fault made,
// ends in exactly one of `envelopes`, `dropped`, `lost` and `unroutable`.
struct SimStatistics {
  int64_t events = 0;
  int64_t envelopes = 0;   // between nodes, delivered
  int64_t body_bytes = 0;  // of these
  int64_t dropped = 0;     // by a fault
  int64_t duplicated = 0;  // by a fault
  int64_t lost = 0;        // queued at or on the way to a node that was killed
  // To an address without a route, or (within a node too) to a lane without an actor.
  int64_t unroutable = 0;
};

class SimRuntime {
 public:
  // Throws ConfigError if a fault's probability is not in [0, 1] or max_delay is negative.
  explicit SimRuntime(const SimOptions& options);
  ~SimRuntime();
  SimRuntime(const SimRuntime&) = delete;
  SimRuntime& operator=(const SimRuntime&) = delete;

  // A group inside of `parent`. Throws ConfigError if the goodput is not positive or the latency
  // negative.
  int AddGroup(const UplinkSpec& uplink, int parent = kNoGroup);
  // A NIC of its own. Several nodes of a job may live on one machine: they share its NIC, and
  // envelopes between them do not touch it. Throws ConfigError if the goodput is not positive, or
  // the latency or the send buffer negative.
  int AddMachine(const NicSpec& nic, int group = kNoGroup);
  // A process of the job on `machine`. `self` may have rank -1; an actor's Outbox.identity changes
  // it. A process that is started again after Kill is a new node, with endpoints of its own.
  SimNode AddNode(NodeId self, int machine);
  // "sim://NODE/LANE"
  std::string endpoint(SimNode node, int lane) const;

  // Gives a lane its actor (kApplicationLane included: in a simulation the program that runs a node
  // is an actor too); an earlier one and its timers are gone. OnStart runs when the simulation
  // reaches the current time, and before the actor gets anything else. The node must be alive.
  //
  // When an actor throws, nothing of its outbox is carried out, it is gone, and the node's
  // application lane gets a kFailed with a wire::End from the actor's lane. If the actor is itself
  // the application, or there is none, Run throws the exception.
  void Attach(SimNode node, int lane, std::unique_ptr<Actor> actor);
  // Throws ConfigError if `endpoint` is not one of this simulation. The endpoint's node may be
  // dead.
  void SetRoute(SimNode node, const Address& to, const std::string& endpoint);

  // The node is gone from now on, as by kill -9: its actors are destroyed, what it has queued is
  // lost, what is sent to it vanishes and does not use a NIC. What has begun to leave it still
  // arrives, as from the kernel's buffers. Killing a dead node does nothing.
  void Kill(SimNode node);
  // Calls `action` at a virtual time (now if it is past).
  void At(Time when, std::function<void()> action);

  // Runs until nothing is left to do, all up to and at `deadline` is done, or Halt is called.
  // Returns now(): the time of the last event in the first and third case, else `deadline`. May be
  // called again, but not from an actor or action.
  Time Run(Time deadline);
  // Makes Run return after the current event; for actors and actions.
  void Halt();

  Time now() const;
  const SimStatistics& statistics() const;

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace poseidon
