#include "transport/membership/heartbeat.h"

#include <utility>

#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr TimerId kBeat = 1;
constexpr TimerId kCheck = 2;

Address SchedulerHeartbeat() { return {{Role::kScheduler, 0}, kHeartbeatLane}; }

Envelope Beat(MessageKind kind, const Address& to, uint64_t epoch) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = to;
  envelope.epoch = epoch;
  return envelope;
}

void AddSilent(const NodeId& node, Duration silence, wire::Silent& silent) {
  wire::Node& added = *silent.add_nodes();
  added.set_role(static_cast<uint32_t>(node.role));
  added.set_rank(node.rank);
  silent.add_silent_seconds(ToSeconds(silence));
}

void Report(const wire::Silent& silent, Outbox& outbox) {
  if (silent.nodes_size() == 0) return;
  outbox.Send(MakeEnvelope(MessageKind::kPeerSilent, Here(kControlLane), silent));
}

}  // namespace

void SilenceDetector::Heard(const NodeId& node, Time now) {
  const auto found = peers_.find(node);
  if (found != peers_.end()) found->second = {now, false};
}

wire::Silent SilenceDetector::Overdue(Time now) const {
  wire::Silent overdue;
  for (const auto& [node, peer] : peers_) {
    if (now - peer.silent_since > timing_.overdue_after()) {
      AddSilent(node, now - peer.silent_since, overdue);
    }
  }
  return overdue;
}

wire::Silent SilenceDetector::Check(Time now) {
  const bool asleep = last_check_ != Time{} && now - last_check_ > timing_.allowed_silence() / 2;
  last_check_ = now;
  wire::Silent silent;
  for (auto entry = peers_.begin(); entry != peers_.end();) {
    if (asleep && !entry->second.excused) entry->second = {now, true};
    const Duration silence = now - entry->second.silent_since;
    if (silence <= timing_.allowed_silence()) {
      ++entry;
      continue;
    }
    AddSilent(entry->first, silence, silent);
    entry = peers_.erase(entry);
  }
  return silent;
}

HeartbeatSender::HeartbeatSender(const HeartbeatTiming& timing, uint64_t epoch)
    : timing_(timing), epoch_(epoch), detector_(timing) {}

void HeartbeatSender::OnStart(Outbox& outbox) {
  detector_.Expect(SchedulerHeartbeat().node, outbox.now);
  OnTimer(kBeat, outbox);
  OnTimer(kCheck, outbox);
}

void HeartbeatSender::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind != MessageKind::kHeartbeatAck || envelope.epoch != epoch_) return;
  detector_.Heard(envelope.from.node, outbox.now);
}

void HeartbeatSender::OnTimer(TimerId timer, Outbox& outbox) {
  if (timer == kBeat) {
    outbox.Send(Beat(MessageKind::kHeartbeat, SchedulerHeartbeat(), epoch_));
    outbox.SetTimer(kBeat, timing_.interval);
  } else {
    Report(detector_.Check(outbox.now), outbox);
    outbox.SetTimer(kCheck, timing_.check_interval());
  }
}

HeartbeatMonitor::HeartbeatMonitor(const HeartbeatTiming& timing, const wire::View& view,
                                   bool tells_overdue)
    : timing_(timing), view_(view), detector_(timing), tells_overdue_(tells_overdue) {}

void HeartbeatMonitor::OnStart(Outbox& outbox) {
  for (const wire::Node& node : view_.nodes()) {
    outbox.routes.push_back({{IdOf(node), kHeartbeatLane}, node.endpoints(kHeartbeatLane)});
    detector_.Expect(IdOf(node), outbox.now);
  }
  outbox.SetTimer(kCheck, timing_.check_interval());
}

void HeartbeatMonitor::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind != MessageKind::kHeartbeat || envelope.epoch != view_.epoch()) return;
  detector_.Heard(envelope.from.node, outbox.now);
  outbox.Send(
      Beat(MessageKind::kHeartbeatAck, {envelope.from.node, kHeartbeatLane}, view_.epoch()));
}

void HeartbeatMonitor::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  Report(detector_.Check(outbox.now), outbox);
  if (tells_overdue_) TellOverdue(outbox);
  outbox.SetTimer(kCheck, timing_.check_interval());
}

void HeartbeatMonitor::TellOverdue(Outbox& outbox) {
  const wire::Silent silent = detector_.Overdue(outbox.now);
  std::vector<NodeId> overdue;
  for (const wire::Node& node : silent.nodes()) overdue.push_back(IdOf(node));
  if (overdue == overdue_) return;
  overdue_ = std::move(overdue);
  outbox.Send(MakeEnvelope(MessageKind::kOverdue, Here(kApplicationLane), silent));
}

}  // namespace poseidon
