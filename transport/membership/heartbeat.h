// Heartbeats: how a node that died or hangs is noticed, on a lane (socket and thread) of their own
// so that no amount of training data delays them.
//
// Every node sends the scheduler a heartbeat an interval and gets an answer to each. Whoever is not
// heard for too long is named to the control lane: a node to the scheduler's, the scheduler to the
// node's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/time.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

struct HeartbeatTiming {
  Duration interval = Seconds(1);
  // From a node's death to the moment all the others know. At least three intervals.
  Duration deadline = Seconds(10);
  // Silence after which a peer is given up: an interval less than the deadline, for the next check
  // to come, the news to travel and the nodes to end. At least two intervals, so that a heartbeat
  // may be late by as much as one.
  Duration allowed_silence() const { return deadline - interval; }
  // Between two looks at who is silent.
  Duration check_interval() const { return interval / 4; }
  // Silence after which a peer's heartbeat is overdue: it may be late by as much as an interval.
  Duration overdue_after() const { return 2 * interval; }
};

// Decides who has been silent for too long. A value without clock.
//
// If the checks themselves come late (this process was stopped, the machine slept), nobody could
// have been heard: then everybody gets a new period instead of being accused. Late is more than
// half of the allowed silence; before such a gap a peer was heard within an interval, which is at
// most the other half. A peer gets that once until it is heard again: on a machine where checks
// come late again and again, the dead would else never be given up.
class SilenceDetector {
 public:
  explicit SilenceDetector(const HeartbeatTiming& timing) : timing_(timing) {}

  void Expect(const NodeId& node, Time now) { peers_[node] = {now, false}; }
  void Heard(const NodeId& node, Time now);
  // To be called every check_interval. The nodes given up, each reported once.
  wire::Silent Check(Time now);
  // Who is not given up yet, and whose heartbeat is overdue, in the order of nodes.
  wire::Silent Overdue(Time now) const;

 private:
  struct Peer {
    Time silent_since{};
    bool excused = false;  // by a late check, since it was last heard
  };

  HeartbeatTiming timing_;
  std::map<NodeId, Peer> peers_;
  Time last_check_{};
};

// A node's half. Reports to Here(kControlLane) with kPeerSilent.
class HeartbeatSender : public Actor {
 public:
  HeartbeatSender(const HeartbeatTiming& timing, uint64_t epoch);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  HeartbeatTiming timing_;
  uint64_t epoch_;
  SilenceDetector detector_;
};

// The scheduler's half, attached when the view is complete. Reports to Here(kControlLane) with
// kPeerSilent, and, where it `tells_overdue`, to Here(kApplicationLane) with kOverdue.
class HeartbeatMonitor : public Actor {
 public:
  HeartbeatMonitor(const HeartbeatTiming& timing, const wire::View& view,
                   bool tells_overdue = false);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void TellOverdue(Outbox& outbox);

  HeartbeatTiming timing_;
  wire::View view_;
  SilenceDetector detector_;
  const bool tells_overdue_;
  std::vector<NodeId> overdue_;  // as it was told last
};

}  // namespace poseidon
