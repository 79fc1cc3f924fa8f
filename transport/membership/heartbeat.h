// Heartbeats: how a node that died or hangs is noticed, on a lane (socket and thread) of their own
// so that no amount of training data delays them.
//
// Every node sends the scheduler a heartbeat an interval and gets an answer to each. Whoever is not
// heard for too long is named to the control lane: a node to the scheduler's, the scheduler to the
// node's.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
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
  // After so long without a confirmation a connection for heartbeats is made anew, for TCP repeats
  // what was lost at doubling intervals: after a cut of half a minute it is silent for up to
  // another one.
  Duration reconnect_after() const { return allowed_silence() / 2; }
  // Within this time after a cut all are heard: an attempt to connect may take 3 s, and another 2 s
  // pass until the next one (transport/zmq/zmq_socket.cc); then a heartbeat leaves.
  Duration heard_again_within() const { return std::max(allowed_silence(), Seconds(5) + interval); }
};

// Decides who has been silent for too long. A value without clock.
//
// If all peers of other machines have been silent, of two machines at least or with no peer on this
// one, it is more likely that this machine is cut off from them than that all have died: a switch
// is started again, a cable is loose. With a `cut_off_deadline` nobody is given up then until one
// of them is heard, or for so long; and once one is, the others have some time to be heard, too.
//
// If the checks themselves come late (this process was stopped, the machine slept), nobody could
// have been heard: then everybody gets a new period instead of being accused. Late is more than
// half of the allowed silence; before such a gap a peer was heard within an interval, which is at
// most the other half. A peer gets that once until it is heard again: on a machine where checks
// come late again and again, the dead would else never be given up.
class SilenceDetector {
 public:
  // Zero: whoever is silent is given up, whatever the others are.
  explicit SilenceDetector(const HeartbeatTiming& timing, Duration cut_off_deadline = {})
      : timing_(timing), cut_off_deadline_(cut_off_deadline) {}

  // `machine` is the other machine that it is on; empty: this one.
  void Expect(const NodeId& node, Time now, const std::string& machine = "") {
    peers_[node] = {machine, now, false};
  }
  void Heard(const NodeId& node, Time now);
  // Nobody is given up before.
  void SpareUntil(Time time) { spared_until_ = time; }
  // Something else has come from another machine.
  void HeardElsewhere(Time now) { heard_elsewhere_ = now; }
  // To be called every check_interval. The nodes given up, each reported once.
  wire::Silent Check(Time now);
  // Who is not given up yet, and whose heartbeat is overdue, in the order of nodes.
  wire::Silent Overdue(Time now) const;
  // As of the last check: whether the other machines are heard.
  const wire::CutOff& cut_off() const { return cut_off_; }

 private:
  struct Peer {
    std::string machine;  // empty: this one
    Time silent_since{};
    bool excused = false;  // by a late check, since it was last heard
  };

  // New periods for all where nobody could have been heard.
  void ExcuseIfLate(Time now);
  void LookForCutOff(Time now);
  wire::CutOff::State CutOffAfter(Duration silence) const;
  // Since somebody of another machine was heard; nullopt where their silence would not say that
  // this one is cut off.
  std::optional<Duration> SilenceElsewhere(Time now) const;

  HeartbeatTiming timing_;
  Duration cut_off_deadline_;
  std::map<NodeId, Peer> peers_;
  Time last_check_{};
  Time heard_elsewhere_{};
  wire::CutOff cut_off_;
  Time spared_until_{};  // all are
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

struct HeartbeatMonitorOptions {
  HeartbeatTiming timing;
  bool tells_overdue = false;
  // What nodes call the machine that the scheduler runs on: those with such a host are on it, too.
  std::set<std::string> own_hosts = {};
  Duration cut_off_deadline{};  // SilenceDetector
  // This machine was cut off: at first all have as much time as their connections may need.
  bool after_cut = false;
};

// The scheduler's half, attached when the view is complete. Reports to Here(kControlLane) with
// kPeerSilent and kCutOff, and, where it `tells_overdue`, to Here(kApplicationLane) with kOverdue.
class HeartbeatMonitor : public Actor {
 public:
  HeartbeatMonitor(HeartbeatMonitorOptions options, const wire::View& view);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  // Empty: the scheduler's own.
  std::string MachineOf(const wire::Node& node) const;
  void Check(Outbox& outbox);
  void TellOverdue(Outbox& outbox);

  const HeartbeatMonitorOptions options_;
  wire::View view_;
  SilenceDetector detector_;
  std::vector<NodeId> overdue_;  // as it was told last
};

}  // namespace poseidon
