// SimNetwork: the machines' NICs, the uplinks and the faults of the network between them. The model
// is described in transport/sim/sim_runtime.h.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/random.h"
#include "transport/envelope.h"
#include "transport/sim/sim_egress.h"
#include "transport/sim/sim_event_queue.h"
#include "transport/sim/sim_lane.h"
#include "transport/sim/sim_pool.h"
#include "transport/sim/sim_runtime.h"
#include "transport/sim/sim_tiers.h"

namespace poseidon {

// An envelope on its way.
struct SimTransfer {
  Envelope envelope;
  SimNode from = 0;
  SimLane to;
  uint32_t next = 0;     // behind it in an ingress queue
  bool watched = false;  // whether it arrives is of interest to its sender's connection
  // Its last byte has not left yet. What was lost or has passed the ingress meanwhile waits for it.
  bool leaving = false;
  bool lost = false;
  bool passed = false;
  Time left{};      // when its last byte had left
  Duration path{};  // latency of its way
  // Between groups: the uplink that it is before, and when its last byte is there.
  SimTiers::Link link = 0;
  Time all_in{};
};

class SimNetwork {
 public:
  // All three must outlive this. Throws ConfigError if a fault's probability is none.
  SimNetwork(const SimOptions* options, SimEventQueue* events, SimStatistics* statistics);

  // Throw ConfigError if the goodput is not positive or the latency negative.
  int AddGroup(const UplinkSpec& uplink, int parent) { return tiers_.AddGroup(uplink, parent); }
  int AddMachine(const NicSpec& nic, int group);
  int machine_count() const { return static_cast<int>(machines_.size()); }
  // Nodes count up from 0.
  void AddNode(int machine) { machine_of_.push_back(machine); }
  void RemoveNode(SimNode node);
  bool alive(SimNode node) const { return machine_of_[static_cast<size_t>(node)] != kGone; }

  // `watched`: TakeDropped tells of it if a fault drops it.
  void Send(Envelope envelope, SimNode from, SimLane to, bool watched = false);
  // Watched transfers that faults have dropped since the last call: from where to where.
  std::vector<std::pair<SimNode, SimLane>> TakeDropped() { return std::exchange(dropped_, {}); }
  bool has_dropped() const { return !dropped_.empty(); }
  // Handles an event of the five kinds that the network pushes. The result, if any, has arrived at
  // its node, which may be gone.
  std::optional<SimTransfer> Handle(const SimEvent& event);

 private:
  static constexpr int kGone = -1;
  static constexpr uint32_t kNone = 0xffffffff;

  struct Machine {
    Machine(const NicSpec& spec, int around)
        : nic(spec), group(around), egress(spec.send_buffer_bytes, spec.goodput_bytes_per_second) {}

    NicSpec nic;
    int group;
    SimEgress egress;
    Time egress_wakes = Time::max();  // of the kEgressLeft event that counts
    // The envelope that passes the ingress, and the queue of those that are ready to.
    uint32_t ingress_current = kNone;
    uint32_t ingress_first = kNone;
    uint32_t ingress_last = kNone;

    Duration TransferTime(int64_t bytes) const {
      return poseidon::TransferTime(bytes, nic.goodput_bytes_per_second);
    }
  };

  Machine& machine(int index) { return machines_[static_cast<size_t>(index)]; }
  int machine_of(SimNode node) const { return machine_of_[static_cast<size_t>(node)]; }
  int64_t BytesOf(uint32_t transfer) const;

  // What has begun to leave the machine is on its way.
  void BeginLeaving(int index);
  void WakeEgress(int index);
  void OnEgressLeft(int index);
  // The transfer's first byte leaves now.
  void Depart(uint32_t transfer);
  // Its last one has left.
  void FinishLeaving(uint32_t transfer);
  void TellOfDeparture(uint32_t transfer, Time when);
  void PassUplink(uint32_t index);
  void ReachIngress(uint32_t transfer);
  void StartIngress(int index, uint32_t transfer);
  uint32_t LeaveIngress(int index);
  // The transfer has passed its ingress: it has arrived, or else an event will say so.
  std::optional<SimTransfer> Arrive(uint32_t transfer);
  // Pushes the transfer's next event, unless a fault prevents it.
  void Cross(uint32_t transfer, Time time, SimEventKind kind);
  void Lose(uint32_t transfer);
  // Nothing of it is needed any more, once it has left.
  void Discard(uint32_t transfer);

  const SimOptions& options_;
  const bool faulty_;
  SimEventQueue& events_;
  SimStatistics& statistics_;
  Random random_;
  SimPool<SimTransfer> transfers_;
  SimTiers tiers_;
  std::vector<Machine> machines_;
  std::vector<int> machine_of_;  // by node
  std::vector<std::pair<SimNode, SimLane>> dropped_;
};

}  // namespace poseidon
