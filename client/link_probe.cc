#include "client/link_probe.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace poseidon {
namespace {

// The shortest round trip counts: of so many one at least meets no other traffic.
constexpr int kPings = 10;
// The first messages may find that the peer's actor is not there yet; they are sent again.
constexpr TimerId kAskAgain = 1;
constexpr Duration kFirstPatience = std::chrono::milliseconds(50);
// Frames of the size that KV pairs have, as many as take a TCP connection well beyond its slow
// start: 16 MiB, 13 ms at 10 Gb/s.
constexpr size_t kBurstFrameBytes = 1 << 20;
constexpr int kBurstFrames = 16;

Payload MakeBurst(bool phantom) {
  if (phantom) return Payload::Phantom(kBurstFrameBytes);
  auto zeros = std::make_shared<std::vector<std::byte>>(kBurstFrameBytes);
  const std::span<const std::byte> view(*zeros);
  return Payload::View(view, std::move(zeros));
}

}  // namespace

LinkProbe::LinkProbe(const LinkProbeOptions& options)
    : options_(options),
      burst_(MakeBurst(options.phantom)),
      pings_(kPings),
      patience_(kFirstPatience) {}

void LinkProbe::OnStart(Outbox& outbox) { SendNext(outbox); }

void LinkProbe::SendNext(Outbox& outbox) {
  if (distance_ >= options_.workers) {
    if (bursts_) {
      Envelope report = MakeEnvelope(MessageKind::kLinkReport, Here(kControlLane), report_);
      report.epoch = options_.epoch;
      return outbox.Send(std::move(report));
    }
    // Only now, so that bursts delay as few of the others' small messages as can be.
    bursts_ = true;
    distance_ = 1;
  }
  ++round_;
  sent_ = outbox.now;
  if (bursts_) {
    SendBurst(outbox);
  } else {
    SendPing(outbox);
  }
}

void LinkProbe::SendPing(Outbox& outbox) {
  outbox.Send(Probe(round_, {}));
  outbox.SetTimer(kAskAgain, patience_);
}

void LinkProbe::SendBurst(Outbox& outbox) {
  // Nothing is lost between two actors that have met: only the last one wants an echo.
  for (int frame = 1; frame <= kBurstFrames; ++frame) {
    outbox.Send(Probe(frame == kBurstFrames ? round_ : 0, burst_));
  }
}

Envelope LinkProbe::Probe(uint32_t round, Payload body) const {
  Envelope envelope;
  envelope.kind = MessageKind::kProbe;
  envelope.to = {{Role::kWorker, peer()}, kFirstDataLane};
  envelope.epoch = options_.epoch;
  envelope.step = round;
  envelope.priority = 0;
  envelope.body = std::move(body);
  return envelope;
}

void LinkProbe::Echo(const Envelope& envelope, Outbox& outbox) const {
  Envelope echo;
  echo.kind = MessageKind::kProbeEcho;
  echo.to = envelope.from;
  echo.epoch = options_.epoch;
  echo.step = envelope.step;
  outbox.Send(std::move(echo));
}

void LinkProbe::OnMessage(const Envelope& envelope, Outbox& outbox) {
  const NodeId& from = envelope.from.node;
  if (envelope.epoch != options_.epoch || from.role != Role::kWorker || from.rank < 0 ||
      from.rank >= options_.workers) {
    return;
  }
  if (envelope.kind == MessageKind::kProbe && envelope.step != 0) {
    Echo(envelope, outbox);
    if (envelope.body.size() == 0) return;
    bursts_taken_.insert(from.rank);
    return FinishBurst(outbox);
  }
  if (envelope.kind == MessageKind::kProbeEcho && envelope.step == round_ && from.rank == peer()) {
    outbox.CancelTimer(kAskAgain);
    if (bursts_) {
      OnBurstEcho(outbox.now - sent_, outbox);
    } else {
      OnPingEcho(outbox.now - sent_, outbox);
    }
  }
}

void LinkProbe::OnPingEcho(Duration elapsed, Outbox& outbox) {
  round_trip_ = pings_ == kPings ? elapsed : std::min(round_trip_, elapsed);
  if (--pings_ == 0) {
    wire::LinkMeasurement* link = report_.add_links();
    link->set_distance(distance_);
    link->set_latency_seconds(ToSeconds(round_trip_) / 2);
    distance_ *= 2;
    pings_ = kPings;
  }
  SendNext(outbox);
}

void LinkProbe::OnBurstEcho(Duration elapsed, Outbox& outbox) {
  for (wire::LinkMeasurement& link : *report_.mutable_links()) {
    if (link.distance() != distance_) continue;
    // The burst's last byte and the echo have been under way for one latency each.
    const double transfer = std::max(ToSeconds(elapsed) - 2 * link.latency_seconds(), 1e-9);
    link.set_goodput_bytes_per_second(static_cast<double>(kBurstFrames * kBurstFrameBytes) /
                                      transfer);
  }
  burst_sent_ = true;
  FinishBurst(outbox);
}

void LinkProbe::FinishBurst(Outbox& outbox) {
  if (!burst_sent_ || !bursts_taken_.contains(source())) return;
  burst_sent_ = false;
  distance_ *= 2;
  SendNext(outbox);
}

void LinkProbe::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  // Doubled, so that links with a longer round trip get their answer, too. The time until the peer
  // was there must not count.
  patience_ *= 2;
  sent_ = outbox.now;
  ++round_;
  SendPing(outbox);
}

}  // namespace poseidon
