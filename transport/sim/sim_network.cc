#include "transport/sim/sim_network.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"

namespace poseidon {
namespace {

// In [0, limit).
Duration UpTo(Duration limit, Random& random) {
  return Duration(static_cast<int64_t>(random.Uniform() * static_cast<double>(limit.count())));
}

// From one node to a lane of another.
uint64_t Connection(SimNode from, SimLane to) {
  return uint64_t{static_cast<uint32_t>(from)} << 32 | to.packed();
}

// Returns whether any fault can happen.
bool CheckFaults(const FaultSpec& faults) {
  const auto check = [](const char* name, double probability) {
    if (probability >= 0 && probability <= 1) return;
    throw ConfigError("simulation: the probability of the fault '" + std::string(name) + "' is " +
                      std::to_string(probability) + "; it must be from 0 to 1");
  };
  check("drop", faults.drop);
  check("duplicate", faults.duplicate);
  check("delay", faults.delay);
  if (faults.max_delay < Duration::zero()) {
    throw ConfigError("simulation: max_delay of faults is negative");
  }
  return faults.drop > 0 || faults.duplicate > 0 || faults.delay > 0;
}

}  // namespace

SimNetwork::SimNetwork(const SimOptions* options, SimEventQueue* events, SimStatistics* statistics)
    : options_(*options),
      faulty_(CheckFaults(options->faults)),
      events_(*events),
      statistics_(*statistics),
      random_(options->seed) {}

int SimNetwork::AddMachine(const NicSpec& nic, int group) {
  if (!(nic.goodput_bytes_per_second > 0)) {
    throw ConfigError("simulation: a NIC's goodput is " +
                      std::to_string(nic.goodput_bytes_per_second) +
                      " bytes/s; it must be positive");
  }
  if (nic.latency < Duration::zero()) {
    throw ConfigError("simulation: a NIC's latency is negative");
  }
  if (nic.send_buffer_bytes < 0) {
    throw ConfigError("simulation: a NIC's send buffer is negative");
  }
  CHECK(group == kNoGroup || (group >= 0 && group < tiers_.group_count())) << "no group " << group;
  machines_.emplace_back(nic, group);
  return machine_count() - 1;
}

void SimNetwork::RemoveNode(SimNode node) {
  machine(machine_of(node)).egress.RemoveIf([&](uint32_t transfer) {
    if (transfers_[transfer].from != node) return false;
    Lose(transfer);
    return true;
  });
  machine_of_[static_cast<size_t>(node)] = kGone;
}

void SimNetwork::Send(Envelope envelope, SimNode from, SimLane to, bool watched) {
  const uint32_t transfer = transfers_.Put({std::move(envelope), from, to, kNone, watched});
  if (to.node() == from) {
    events_.Push(events_.now(), SimEventKind::kArrives, transfer);
    return;
  }
  const int source = machine_of(from);
  const int target = machine_of(to.node());
  if (target == kGone) {
    Lose(transfer);
  } else if (target == source) {
    TellOfDeparture(transfer, events_.now());
    Cross(transfer, events_.now(), SimEventKind::kArrives);
  } else {
    Machine& sender = machine(source);
    sender.egress.Push(transfer, transfers_[transfer].envelope.priority, Connection(from, to),
                       BytesOf(transfer));
    if (sender.egress_waking) return;
    if (sender.egress_free <= events_.now()) {
      StartEgress(source);
    } else {
      WakeEgressLater(source);
    }
  }
}

std::optional<SimTransfer> SimNetwork::Handle(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kEgressFree:
      machine(static_cast<int>(event.subject)).egress_waking = false;
      StartEgress(static_cast<int>(event.subject));
      return std::nullopt;
    case SimEventKind::kReachesUplink:
      PassUplink(event.subject);
      return std::nullopt;
    case SimEventKind::kReachesIngress:
      ReachIngress(event.subject);
      return std::nullopt;
    case SimEventKind::kLeavesIngress:
      return transfers_.Take(LeaveIngress(static_cast<int>(event.subject)));
    default:
      return transfers_.Take(event.subject);
  }
}

int64_t SimNetwork::BytesOf(uint32_t transfer) const {
  return static_cast<int64_t>(transfers_[transfer].envelope.body.size()) + options_.header_bytes;
}

// Takes up the first envelope of the queue, if there is one. The egress is free.
void SimNetwork::StartEgress(int index) {
  Machine& sender = machine(index);
  while (!sender.egress.empty()) {
    const uint32_t transfer = sender.egress.Pop();
    const int target = machine_of(transfers_[transfer].to.node());
    if (target == kGone) {
      Lose(transfer);
      continue;
    }
    const Duration egress_time = sender.TransferTime(BytesOf(transfer));
    sender.egress_free = events_.now() + egress_time;
    TellOfDeparture(transfer, sender.egress_free);
    const Machine& receiver = machine(target);
    if (sender.group != receiver.group) {
      transfers_[transfer].link = tiers_.First(sender.group, receiver.group);
      transfers_[transfer].all_in = sender.egress_free + sender.nic.latency;
      Cross(transfer, events_.now() + sender.nic.latency, SimEventKind::kReachesUplink);
    } else {
      const Duration ingress_time = receiver.TransferTime(BytesOf(transfer));
      const Time ready = events_.now() + sender.nic.latency +
                         std::max(Duration::zero(), egress_time - ingress_time);
      Cross(transfer, ready, SimEventKind::kReachesIngress);
    }
    if (!sender.egress.empty()) WakeEgressLater(index);
    return;
  }
}

void SimNetwork::TellOfDeparture(uint32_t transfer, Time when) {
  std::shared_ptr<Departure>& departure = transfers_[transfer].envelope.departure;
  if (departure == nullptr) return;
  departure->Left(when);
  departure.reset();
}

void SimNetwork::WakeEgressLater(int index) {
  machine(index).egress_waking = true;
  events_.Push(machine(index).egress_free, SimEventKind::kEgressFree, static_cast<uint32_t>(index));
}

void SimNetwork::PassUplink(uint32_t index) {
  SimTransfer& transfer = transfers_[index];
  const int target = machine_of(transfer.to.node());
  if (target == kGone) return Lose(index);
  const Machine& receiver = machine(target);
  const SimTiers::Passage passage =
      tiers_.Pass(transfer.link, BytesOf(index), events_.now(), transfer.all_in);
  transfer.all_in = passage.all_in;
  if (const auto next = tiers_.Next(transfer.link, receiver.group)) {
    transfer.link = *next;
    events_.Push(passage.next, SimEventKind::kReachesUplink, index);
  } else {
    const Time ready =
        std::max(passage.next, passage.all_in - receiver.TransferTime(BytesOf(index)));
    events_.Push(ready, SimEventKind::kReachesIngress, index);
  }
}

void SimNetwork::ReachIngress(uint32_t transfer) {
  const int target = machine_of(transfers_[transfer].to.node());
  if (target == kGone) {
    Lose(transfer);
    return;
  }
  Machine& receiver = machine(target);
  if (receiver.ingress_current == kNone) {
    StartIngress(target, transfer);
    return;
  }
  transfers_[transfer].next = kNone;
  if (receiver.ingress_first == kNone) {
    receiver.ingress_first = transfer;
  } else {
    transfers_[receiver.ingress_last].next = transfer;
  }
  receiver.ingress_last = transfer;
}

void SimNetwork::StartIngress(int index, uint32_t transfer) {
  Machine& receiver = machine(index);
  receiver.ingress_current = transfer;
  events_.Push(events_.now() + receiver.TransferTime(BytesOf(transfer)),
               SimEventKind::kLeavesIngress, static_cast<uint32_t>(index));
}

// Returns the envelope that has passed, and lets the next one in.
uint32_t SimNetwork::LeaveIngress(int index) {
  Machine& receiver = machine(index);
  const uint32_t passed = receiver.ingress_current;
  receiver.ingress_current = kNone;
  while (receiver.ingress_first != kNone) {
    const uint32_t transfer = receiver.ingress_first;
    receiver.ingress_first = transfers_[transfer].next;
    if (alive(transfers_[transfer].to.node())) {
      StartIngress(index, transfer);
      break;
    }
    Lose(transfer);
  }
  return passed;
}

void SimNetwork::Cross(uint32_t transfer, Time time, SimEventKind kind) {
  const Envelope& envelope = transfers_[transfer].envelope;
  if (faulty_ && (!options_.fault_filter || options_.fault_filter(envelope))) {
    const FaultSpec& faults = options_.faults;
    if (random_.Chance(faults.drop)) {
      ++statistics_.dropped;
      const SimTransfer dropped = transfers_.Take(transfer);
      if (dropped.watched) dropped_.emplace_back(dropped.from, dropped.to);
      return;
    }
    if (random_.Chance(faults.delay)) time += UpTo(faults.max_delay, random_);
    if (random_.Chance(faults.duplicate)) {
      ++statistics_.duplicated;
      const uint32_t copy = transfers_.Put(SimTransfer(transfers_[transfer]));
      events_.Push(time + UpTo(faults.max_delay, random_), kind, copy);
    }
  }
  events_.Push(time, kind, transfer);
}

void SimNetwork::Lose(uint32_t transfer) {
  ++statistics_.lost;
  transfers_.Take(transfer);
}

}  // namespace poseidon
