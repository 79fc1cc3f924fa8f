#include "client/link_probe.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "proto/cluster_rates.h"

namespace poseidon {
namespace {

// The shortest round trip counts: of so many one at least meets no other traffic.
constexpr int kPings = 10;
// The first messages may find that the peer's actor is not there yet; they are sent again.
constexpr TimerId kAskAgain = 1;
constexpr Duration kFirstPatience = std::chrono::milliseconds(50);
// Of a trial, and of each message of a burst: 0.2 ms at 10 Gb/s, 0.1 s at 20 Mb/s.
constexpr size_t kBodyBytes = 256 << 10;
// A burst takes about so long where that is not more than takes a TCP connection well beyond its
// slow start: 16 MiB, 13 ms at 10 Gb/s. A trial, which has the slow start, makes it rather shorter.
constexpr double kBurstSeconds = 0.2;
constexpr int kMostMessages = 64;
// Where pings were delayed and the burst was not it may seem to have taken no time, and a network
// to be beyond what a job config may say of one.
constexpr double kMostBytesPerSecond = static_cast<double>(kMostBitRate) / 8;

Payload MakeBody(bool phantom) {
  if (phantom) return Payload::Phantom(kBodyBytes);
  auto zeros = std::make_shared<std::vector<std::byte>>(kBodyBytes);
  const std::span<const std::byte> view(*zeros);
  return Payload::View(view, std::move(zeros));
}

}  // namespace

LinkProbe::LinkProbe(const LinkProbeOptions& options)
    : options_(options),
      body_(MakeBody(options.phantom)),
      pings_(kPings),
      patience_(kFirstPatience) {}

void LinkProbe::OnStart(Outbox& outbox) { SendNext(outbox); }

void LinkProbe::SendNext(Outbox& outbox) {
  if (reported()) {
    if (purpose_ != kPing) {
      Envelope report = MakeEnvelope(MessageKind::kLinkReport, Here(kControlLane), report_);
      report.epoch = options_.epoch;
      return outbox.Send(std::move(report));
    }
    // Only now, so that bursts delay as few of the others' small messages as can be.
    purpose_ = kQuestion;
    place_ = 0;
  }
  if (purpose_ == kPing) {
    SendPing(outbox);
  } else {
    SendQuestion(outbox);
  }
}

void LinkProbe::SendPing(Outbox& outbox) {
  sent_ = outbox.now;
  outbox.Send(Probe(kPing, ++round_));
  outbox.SetTimer(kAskAgain, patience_);
}

void LinkProbe::SendQuestion(Outbox& outbox) {
  purpose_ = kQuestion;
  outbox.Send(Probe(kQuestion, ++round_));
  const auto waiting = questions_.find(source());
  if (waiting == questions_.end()) return;
  Echo(waiting->second, outbox);
  questions_.erase(waiting);
}

void LinkProbe::OnQuestion(const Envelope& envelope, Outbox& outbox) {
  const int rank = envelope.from.node.rank;
  if (purpose_ != kPing && !reported() && rank == source()) return Echo(envelope, outbox);
  questions_[rank] = envelope;
}

void LinkProbe::SendTrial(Outbox& outbox) {
  purpose_ = kTrial;
  sent_ = outbox.now;
  outbox.Send(Probe(kTrial, ++round_));
}

void LinkProbe::SendBurst(Outbox& outbox) {
  purpose_ = kBurst;
  sent_ = outbox.now;
  ++round_;
  // Nothing is lost between two actors that have met: only the last one wants an echo.
  for (int message = 1; message <= burst_messages_; ++message) {
    outbox.Send(Probe(kBurst, message == burst_messages_ ? round_ : 0));
  }
}

Envelope LinkProbe::Probe(Purpose purpose, uint32_t round) const {
  Envelope envelope;
  envelope.kind = MessageKind::kProbe;
  envelope.to = {{Role::kWorker, peer()}, kFirstDataLane};
  envelope.epoch = options_.epoch;
  envelope.chunk = purpose;
  envelope.step = round;
  envelope.priority = 0;
  if (purpose == kTrial || purpose == kBurst) envelope.body = body_;
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
    if (envelope.chunk == kQuestion) return OnQuestion(envelope, outbox);
    Echo(envelope, outbox);
    if (envelope.chunk != kBurst) return;
    bursts_taken_.insert(from.rank);
    return FinishBurst(outbox);
  }
  if (envelope.kind == MessageKind::kProbeEcho && !reported() && envelope.step == round_ &&
      from.rank == peer()) {
    outbox.CancelTimer(kAskAgain);
    const Duration elapsed = outbox.now - sent_;
    if (purpose_ == kPing) return OnPingEcho(elapsed, outbox);
    if (purpose_ == kQuestion) return SendTrial(outbox);
    if (purpose_ == kTrial) return OnTrialEcho(elapsed, outbox);
    OnBurstEcho(elapsed, outbox);
  }
}

void LinkProbe::OnPingEcho(Duration elapsed, Outbox& outbox) {
  round_trip_ = pings_ == kPings ? elapsed : std::min(round_trip_, elapsed);
  if (--pings_ == 0) {
    wire::LinkMeasurement* link = report_.add_links();
    link->set_distance(distance());
    link->set_latency_seconds(ToSeconds(round_trip_) / 2);
    ++place_;
    pings_ = kPings;
  }
  SendNext(outbox);
}

wire::LinkMeasurement& LinkProbe::link() {
  return *report_.mutable_links(static_cast<int>(place_));
}

// The last byte and the echo have been under way for one latency each.
double LinkProbe::TransferSeconds(Duration elapsed) {
  constexpr double kLeast = 1e-9;
  return std::max(ToSeconds(elapsed) - 2 * link().latency_seconds(), kLeast);
}

void LinkProbe::OnTrialEcho(Duration elapsed, Outbox& outbox) {
  const double messages = kBurstSeconds / TransferSeconds(elapsed);
  burst_messages_ = static_cast<int>(std::clamp<double>(messages, 1, kMostMessages));
  SendBurst(outbox);
}

void LinkProbe::OnBurstEcho(Duration elapsed, Outbox& outbox) {
  const double bytes = static_cast<double>(burst_messages_ * kBodyBytes);
  link().set_goodput_bytes_per_second(
      std::min(bytes / TransferSeconds(elapsed), kMostBytesPerSecond));
  burst_sent_ = true;
  FinishBurst(outbox);
}

void LinkProbe::FinishBurst(Outbox& outbox) {
  if (!burst_sent_ || !bursts_taken_.contains(source())) return;
  burst_sent_ = false;
  ++place_;
  SendNext(outbox);
}

void LinkProbe::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  // Doubled, so that links with a longer round trip get their answer, too. The time until the peer
  // was there must not count.
  patience_ *= 2;
  SendPing(outbox);
}

}  // namespace poseidon
