// SimRuntime: carries the actors of a whole cluster in virtual time, in one thread.
//
// Every node has one NIC, a full-duplex pair of queues. An envelope to another node waits in its
// sender's egress queue (by priority, then first come first served; one envelope at a time, never
// preempted), takes size / goodput to leave, `latency` to cross, and size / goodput to pass the
// receiver's ingress queue (first come first served); cut-through: when nothing else uses either end
// an envelope takes size / min(goodputs) + latency, not twice the size. Envelopes within a node
// arrive at once. Size is the body plus `header_bytes`.
//
// Repeatable: the same actors, calls and seed give the same run, event by event, on every machine.
// Faults are drawn from the seed per envelope between nodes.
//
// Not thread-safe; different SimRuntimes are independent.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/time.h"
#include "transport/actor.h"

namespace poseidon {

struct NicSpec {
  double goodput_bytes_per_second = 5e9;  // each direction; 40 Gb/s
  Duration latency = std::chrono::microseconds(20);  // one way, added by the sender's side
};

// Probabilities of faults, each drawn independently per envelope between nodes.
struct FaultSpec {
  double drop = 0;
  double duplicate = 0;       // arrives a second time, up to max_delay later
  double delay = 0;           // is held back for a random time up to max_delay, so others overtake
  Duration max_delay = std::chrono::milliseconds(10);
};

struct SimOptions {
  uint64_t seed = 1;
  // Wire bytes of an envelope besides its body: frame header and ZeroMQ and TCP framing.
  int64_t header_bytes = 64;
  FaultSpec faults;
  // If set, only envelopes for which it is true suffer faults.
  std::function<bool(const Envelope&)> fault_filter;
};

struct SimStatistics {
  int64_t events = 0;
  int64_t envelopes = 0;          // between nodes, delivered
  int64_t body_bytes = 0;         // of these
  int64_t dropped = 0;
  int64_t duplicated = 0;
  int64_t unroutable = 0;
};

// Index of a simulated machine: 0, 1, ...
using SimNode = int;

class SimRuntime {
 public:
  explicit SimRuntime(const SimOptions& options);
  ~SimRuntime();
  SimRuntime(const SimRuntime&) = delete;
  SimRuntime& operator=(const SimRuntime&) = delete;

  // A NIC of its own. Several nodes of a job may live on one machine: they share its NIC, and
  // envelopes between them do not touch it.
  int AddMachine(const NicSpec& nic);
  // A process of the job on `machine`. `self` may have rank -1.
  SimNode AddNode(NodeId self, int machine);
  // "sim://NODE/LANE"
  std::string endpoint(SimNode node, int lane) const;

  // Gives a lane its actor (kApplicationLane included: in a simulation the program that runs a node
  // is an actor too). OnStart runs when the simulation reaches the current time.
  void Attach(SimNode node, int lane, std::unique_ptr<Actor> actor);
  void SetRoute(SimNode node, const Address& to, const std::string& endpoint);

  // The node is gone from now on, as by kill -9: its actors are destroyed, what it has queued is
  // lost, what is sent to it vanishes.
  void Kill(SimNode node);
  // Calls `action` at a virtual time (now if it is past).
  void At(Time when, std::function<void()> action);

  // Runs until nothing is left to do, `deadline` is reached or Halt is called. Returns the time.
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
