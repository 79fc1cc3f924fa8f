#include "transport/membership/heartbeat.h"

#include <algorithm>
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

// To the control lane of this node, from who watches under the view of this epoch.
template <typename Message>
void Report(MessageKind kind, const Message& message, uint64_t epoch, Outbox& outbox) {
  Envelope report = MakeEnvelope(kind, Here(kControlLane), message);
  report.epoch = epoch;
  outbox.Send(std::move(report));
}

void ReportSilent(const wire::Silent& silent, uint64_t epoch, Outbox& outbox) {
  if (silent.nodes_size() > 0) Report(MessageKind::kPeerSilent, silent, epoch, outbox);
}

}  // namespace

void SilenceDetector::Heard(const NodeId& node, Time now) {
  const auto found = peers_.find(node);
  if (found == peers_.end()) return;
  found->second.silent_since = now;
  found->second.excused = false;
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

void SilenceDetector::ExcuseIfLate(Time now) {
  const bool asleep = last_check_ != Time{} && now - last_check_ > timing_.allowed_silence() / 2;
  last_check_ = now;
  if (!asleep) return;
  for (auto& [node, peer] : peers_) {
    if (!peer.excused) peer = {peer.machine, now, true};
  }
}

std::optional<Duration> SilenceDetector::SilenceElsewhere(Time now) const {
  std::set<std::string> machines;
  bool some_here = false;
  Time heard = heard_elsewhere_;
  for (const auto& [node, peer] : peers_) {
    if (peer.machine.empty()) {
      some_here = true;
      continue;
    }
    machines.insert(peer.machine);
    heard = std::max(heard, peer.silent_since);
  }
  // One of two machines that does not hear the other can't tell which of them is at fault.
  const bool telling = machines.size() > 1 || (machines.size() == 1 && !some_here);
  return telling ? std::optional(now - heard) : std::nullopt;
}

wire::CutOff::State SilenceDetector::CutOffAfter(Duration silence) const {
  if (silence > cut_off_deadline_) {
    return cut_off_.state() == wire::CutOff::HEARD ? wire::CutOff::HEARD : wire::CutOff::GIVEN_UP;
  }
  if (silence > timing_.allowed_silence()) return wire::CutOff::CUT_OFF;
  // Not a heartbeat that is late by half an interval. And long before anybody is given up: who was
  // heard first before a cut falls silent an interval before the others, and after a short one
  // some are heard again seconds later than others.
  const Duration suspicious = std::max(timing_.interval * 3 / 2, timing_.allowed_silence() / 2);
  return silence > suspicious ? wire::CutOff::SUSPECTED : wire::CutOff::HEARD;
}

void SilenceDetector::LookForCutOff(Time now) {
  if (cut_off_deadline_ == Duration::zero()) return;
  const std::optional<Duration> silence = SilenceElsewhere(now);
  const wire::CutOff::State state = silence ? CutOffAfter(*silence) : wire::CutOff::HEARD;
  const bool waited =
      cut_off_.state() == wire::CutOff::SUSPECTED || cut_off_.state() == wire::CutOff::CUT_OFF;
  if (waited && state == wire::CutOff::HEARD) {
    spared_until_ = now + timing_.heard_again_within();
  } else {
    cut_off_.set_silent_seconds(ToSeconds(silence.value_or(Duration::zero())));
  }
  cut_off_.set_state(state);
}

wire::Silent SilenceDetector::Check(Time now) {
  ExcuseIfLate(now);
  LookForCutOff(now);
  wire::Silent silent;
  const bool waits = cut_off_.state() == wire::CutOff::SUSPECTED ||
                     cut_off_.state() == wire::CutOff::CUT_OFF || now < spared_until_;
  if (waits) return silent;
  for (auto entry = peers_.begin(); entry != peers_.end();) {
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
    ReportSilent(detector_.Check(outbox.now), epoch_, outbox);
    outbox.SetTimer(kCheck, timing_.check_interval());
  }
}

HeartbeatMonitor::HeartbeatMonitor(HeartbeatMonitorOptions options, const wire::View& view)
    : options_(std::move(options)),
      view_(view),
      detector_(options_.timing, options_.cut_off_deadline) {}

std::string HeartbeatMonitor::MachineOf(const wire::Node& node) const {
  return options_.own_hosts.contains(node.host()) ? "" : node.host();
}

void HeartbeatMonitor::OnStart(Outbox& outbox) {
  for (const wire::Node& node : view_.nodes()) {
    outbox.routes.push_back({.to = {IdOf(node), kHeartbeatLane},
                             .endpoint = node.endpoints(kHeartbeatLane),
                             .lost_after = options_.timing.reconnect_after()});
    detector_.Expect(IdOf(node), outbox.now, MachineOf(node));
  }
  if (options_.after_cut) detector_.SpareUntil(outbox.now + options_.timing.heard_again_within());
  outbox.SetTimer(kCheck, options_.timing.check_interval());
}

void HeartbeatMonitor::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kRegistering) {
    wire::Node node;
    const bool is_known = node.ParseFromString(envelope.body.ToString());
    if (is_known && !MachineOf(node).empty()) detector_.HeardElsewhere(outbox.now);
    return;
  }
  if (envelope.kind != MessageKind::kHeartbeat || envelope.epoch != view_.epoch()) return;
  detector_.Heard(envelope.from.node, outbox.now);
  outbox.Send(
      Beat(MessageKind::kHeartbeatAck, {envelope.from.node, kHeartbeatLane}, view_.epoch()));
}

void HeartbeatMonitor::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  Check(outbox);
  if (options_.tells_overdue) TellOverdue(outbox);
  outbox.SetTimer(kCheck, options_.timing.check_interval());
}

void HeartbeatMonitor::Check(Outbox& outbox) {
  const wire::CutOff::State before = detector_.cut_off().state();
  const wire::Silent silent = detector_.Check(outbox.now);
  if (detector_.cut_off().state() != before) {
    Report(MessageKind::kCutOff, detector_.cut_off(), view_.epoch(), outbox);
  }
  ReportSilent(silent, view_.epoch(), outbox);
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
