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
  // What waits at it is lost, and so is what others have for it, which does not use their links.
  for (Machine& sender : machines_) {
    sender.egress.RemoveIf([&](uint32_t transfer) {
      if (transfers_[transfer].from != node && transfers_[transfer].to.node() != node) return false;
      Lose(transfer);
      return true;
    });
  }
  machine_of_[static_cast<size_t>(node)] = kGone;
}

void SimNetwork::Send(Envelope envelope, SimNode from, SimLane to, bool watched) {
  const uint32_t transfer = transfers_.Put(
      {.envelope = std::move(envelope), .from = from, .to = to, .next = kNone, .watched = watched});
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
    machine(source).egress.Push(transfer, transfers_[transfer].envelope.priority,
                                Connection(from, to), BytesOf(transfer), events_.now().count());
    BeginLeaving(source);
    WakeEgress(source);
  }
}

std::optional<SimTransfer> SimNetwork::Handle(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kEgressLeft:
      OnEgressLeft(static_cast<int>(event.subject));
      return std::nullopt;
    case SimEventKind::kReachesUplink:
      PassUplink(event.subject);
      return std::nullopt;
    case SimEventKind::kReachesIngress:
      ReachIngress(event.subject);
      return std::nullopt;
    case SimEventKind::kLeavesIngress:
      return Arrive(LeaveIngress(static_cast<int>(event.subject)));
    default:
      return transfers_.Take(event.subject);
  }
}

int64_t SimNetwork::BytesOf(uint32_t transfer) const {
  return static_cast<int64_t>(transfers_[transfer].envelope.body.size()) + options_.header_bytes;
}

void SimNetwork::BeginLeaving(int index) {
  while (const std::optional<uint32_t> begun = machine(index).egress.NextBegun()) Depart(*begun);
}

// What begins to leave makes others leave later: then the event that there is comes too early, and
// looks again.
void SimNetwork::WakeEgress(int index) {
  Machine& sender = machine(index);
  const Time next{sender.egress.NextLeft()};
  if (next >= sender.egress_wakes) return;
  sender.egress_wakes = next;
  events_.Push(sender.egress_wakes, SimEventKind::kEgressLeft, static_cast<uint32_t>(index));
}

void SimNetwork::OnEgressLeft(int index) {
  Machine& sender = machine(index);
  if (sender.egress_wakes != events_.now()) return;  // an earlier one came after it
  sender.egress_wakes = Time::max();
  while (const std::optional<uint32_t> left = sender.egress.PopLeft(events_.now().count())) {
    FinishLeaving(*left);
    BeginLeaving(index);
  }
  WakeEgress(index);
}

// On its way it takes up links as if nothing else left its machine; it has arrived no earlier than
// its last byte, which is known when that has left.
void SimNetwork::Depart(uint32_t index) {
  SimTransfer& transfer = transfers_[index];
  transfer.leaving = true;
  const Machine& sender = machine(machine_of(transfer.from));
  const Machine& receiver = machine(machine_of(transfer.to.node()));
  const Duration egress_time = sender.TransferTime(BytesOf(index));
  transfer.path = sender.nic.latency;
  if (sender.group != receiver.group) {
    transfer.link = tiers_.First(sender.group, receiver.group);
    transfer.all_in = events_.now() + egress_time + sender.nic.latency;
    Cross(index, events_.now() + sender.nic.latency, SimEventKind::kReachesUplink);
  } else {
    const Duration ingress_time = receiver.TransferTime(BytesOf(index));
    const Time ready =
        events_.now() + sender.nic.latency + std::max(Duration::zero(), egress_time - ingress_time);
    Cross(index, ready, SimEventKind::kReachesIngress);
  }
}

void SimNetwork::FinishLeaving(uint32_t index) {
  SimTransfer& transfer = transfers_[index];
  transfer.leaving = false;
  transfer.left = events_.now();
  TellOfDeparture(index, transfer.left);
  if (transfer.lost) {
    transfers_.Take(index);
  } else if (transfer.passed) {
    events_.Push(transfer.left + transfer.path, SimEventKind::kArrives, index);
  }
}

void SimNetwork::TellOfDeparture(uint32_t transfer, Time when) {
  std::shared_ptr<Departure>& departure = transfers_[transfer].envelope.departure;
  if (departure == nullptr) return;
  departure->Left(when);
  departure.reset();
}

void SimNetwork::PassUplink(uint32_t index) {
  SimTransfer& transfer = transfers_[index];
  const int target = machine_of(transfer.to.node());
  if (target == kGone) return Lose(index);
  const Machine& receiver = machine(target);
  const SimTiers::Passage passage =
      tiers_.Pass(transfer.link, BytesOf(index), events_.now(), transfer.all_in);
  transfer.all_in = passage.all_in;
  transfer.path += passage.next - passage.start;
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

std::optional<SimTransfer> SimNetwork::Arrive(uint32_t index) {
  SimTransfer& transfer = transfers_[index];
  if (transfer.leaving) {
    transfer.passed = true;
    return std::nullopt;
  }
  const Time whole = transfer.left + transfer.path;
  if (whole <= events_.now()) return transfers_.Take(index);
  events_.Push(whole, SimEventKind::kArrives, index);
  return std::nullopt;
}

void SimNetwork::Cross(uint32_t transfer, Time time, SimEventKind kind) {
  const Envelope& envelope = transfers_[transfer].envelope;
  if (faulty_ && (!options_.fault_filter || options_.fault_filter(envelope))) {
    const FaultSpec& faults = options_.faults;
    if (random_.Chance(faults.drop)) {
      ++statistics_.dropped;
      const SimTransfer& dropped = transfers_[transfer];
      if (dropped.watched) dropped_.emplace_back(dropped.from, dropped.to);
      return Discard(transfer);
    }
    if (random_.Chance(faults.delay)) time += UpTo(faults.max_delay, random_);
    if (random_.Chance(faults.duplicate)) {
      ++statistics_.duplicated;
      const uint32_t copy = transfers_.Put(SimTransfer(transfers_[transfer]));
      transfers_[copy].leaving = false;
      transfers_[copy].envelope.departure.reset();
      events_.Push(time + UpTo(faults.max_delay, random_), kind, copy);
    }
  }
  events_.Push(time, kind, transfer);
}

void SimNetwork::Lose(uint32_t transfer) {
  ++statistics_.lost;
  Discard(transfer);
}

void SimNetwork::Discard(uint32_t transfer) {
  if (transfers_[transfer].leaving) {
    transfers_[transfer].lost = true;
  } else {
    transfers_.Take(transfer);
  }
}

}  // namespace poseidon
