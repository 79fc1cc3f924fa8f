// LinkProbe: measures what the network between the workers does, before there is a plan, so that
// the planner need not be told. The actor of a worker's data lane until the plan puts another one
// there.
//
// Each worker measures the links to the workers some distances after it: of one after the other the
// latency, by small messages, then likewise the goodput, by a burst of large ones, as many as
// take a fifth of a second by what a single one before them took. All workers do so at about the
// same time, so each link carries one burst in each direction, as in training, and no more: a
// worker asks the next one before it sends, which answers when it has come to the same distance,
// done with the bursts of those before.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "core/time.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

struct LinkProbeOptions {
  int rank = 0;
  int workers = 1;
  // Of the workers to measure the links to: ranks after this one's, 1 to `workers` - 1, each once,
  // the same for all workers. Not empty.
  std::vector<int> distances;
  uint64_t epoch = 0;
  bool phantom = false;  // no floats: simulation
};

// kLinkReport (wire::LinkReport) to Here(kControlLane) when all is measured. A peer that never
// answers is the join deadline's matter.
class LinkProbe : public Actor {
 public:
  explicit LinkProbe(const LinkProbeOptions& options);

  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  bool reported() const { return place_ == options_.distances.size(); }
  int distance() const { return options_.distances[place_]; }
  int peer() const { return (options_.rank + distance()) % options_.workers; }
  int source() const { return (options_.rank + options_.workers - distance()) % options_.workers; }
  void SendNext(Outbox& outbox);
  void SendPing(Outbox& outbox);
  // Asks the worker at this distance, and answers the one that is waiting for this one there.
  void SendQuestion(Outbox& outbox);
  void SendTrial(Outbox& outbox);
  void SendBurst(Outbox& outbox);
  // Goes on to the next distance when the bursts of this one have come, both ways.
  void FinishBurst(Outbox& outbox);
  // What a probe is for: its `chunk`.
  enum Purpose : uint32_t { kPing, kQuestion, kTrial, kBurst };
  // `round` of a probe that wants an echo; 0 of one that does not.
  Envelope Probe(Purpose purpose, uint32_t round) const;
  void Echo(const Envelope& envelope, Outbox& outbox) const;
  void OnQuestion(const Envelope& envelope, Outbox& outbox);
  void OnPingEcho(Duration elapsed, Outbox& outbox);
  void OnTrialEcho(Duration elapsed, Outbox& outbox);
  void OnBurstEcho(Duration elapsed, Outbox& outbox);
  double TransferSeconds(Duration elapsed);
  // The link whose goodput is being measured.
  wire::LinkMeasurement& link();

  LinkProbeOptions options_;
  Payload body_;                // of a trial, and of each message of a burst
  Purpose purpose_ = kPing;     // of the probe whose echo is awaited
  int burst_messages_ = 0;      // at this distance
  bool burst_sent_ = false;     // and echoed, at this distance
  std::set<int> bursts_taken_;  // ranks whose bursts have come
  // By rank: of those who wait until this worker is at their distance.
  std::map<int, Envelope> questions_;
  size_t place_ = 0;    // in `distances`
  int pings_;           // left to be answered at this distance
  uint32_t round_ = 0;  // of the probe whose echo is awaited
  Time sent_{};
  Duration patience_{};    // before a small message is sent again
  Duration round_trip_{};  // the shortest at this distance
  wire::LinkReport report_;
};

}  // namespace poseidon
