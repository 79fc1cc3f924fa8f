#include "transport/membership/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

namespace poseidon {
namespace {

constexpr NodeId kWorker{Role::kWorker, 1};
constexpr NodeId kServer{Role::kServer, 0};
constexpr NodeId kScheduler{Role::kScheduler, 0};
constexpr uint64_t kEpoch = 9;

HeartbeatTiming Timing(double interval, double deadline) {
  return {Seconds(interval), Seconds(deadline)};
}

std::vector<NodeId> Ids(const wire::Silent& silent) {
  std::vector<NodeId> ids;
  for (const wire::Node& node : silent.nodes()) {
    ids.push_back({static_cast<Role>(node.role()), node.rank()});
  }
  return ids;
}

TEST(SilenceDetectorTest, NamesTheSilentOnceAfterTheAllowedSilence) {
  const HeartbeatTiming timing = Timing(1, 10);
  SilenceDetector detector(timing);
  detector.Expect(kWorker, Seconds(0));
  detector.Expect(kServer, Seconds(0));
  std::vector<std::pair<double, NodeId>> told;
  for (int quarters = 1; quarters < 120; ++quarters) {
    const double now = quarters / 4.0;
    if (now <= 12 && quarters % 4 == 0) detector.Heard(kServer, Seconds(now));
    for (const NodeId& id : Ids(detector.Check(Seconds(now)))) told.push_back({now, id});
  }
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].second, kWorker);
  EXPECT_DOUBLE_EQ(told[0].first, 9.25);
  EXPECT_EQ(told[1].second, kServer);
  EXPECT_DOUBLE_EQ(told[1].first, 21.25);
}

TEST(SilenceDetectorTest, WhoeverOversleptAccusesNobody) {
  for (const double deadline : {3.0, 4.0, 10.0}) {
    const HeartbeatTiming timing = Timing(1, deadline);
    SilenceDetector detector(timing);
    detector.Expect(kWorker, Seconds(0));
    EXPECT_TRUE(Ids(detector.Check(Seconds(0.25))).empty());
    // Stopped for an hour; the heartbeats of that time are not read yet.
    EXPECT_TRUE(Ids(detector.Check(Seconds(3600))).empty());
    double now = 3600;
    while (Ids(detector.Check(Seconds(now))).empty()) {
      now += 0.25;
      ASSERT_LT(now, 3700);
    }
    EXPECT_GE(now - 3600, deadline - 1);
    EXPECT_LE(now - 3600, deadline);
  }
}

// However late the checks come, and however much of an interval ago the peer was heard before.
TEST(SilenceDetectorTest, NoPauseOfItsOwnMakesItAccuseALivingPeer) {
  for (const double deadline : {3.0, 3.5, 5.0, 10.0}) {
    for (int quarters = 1; quarters < 80; ++quarters) {
      const double pause = quarters / 4.0;
      SilenceDetector detector(Timing(1, deadline));
      detector.Expect(kWorker, Seconds(0));
      for (const double now : {0.0, 0.25, 0.5, 0.75}) detector.Check(Seconds(now));
      EXPECT_TRUE(Ids(detector.Check(Seconds(1 + pause))).empty())
          << "deadline " << deadline << ", pause " << pause;
    }
  }
}

// A machine with many times more to do than cores: no check is ever in time.
TEST(SilenceDetectorTest, ChecksThatAreAlwaysLateStillGiveUpTheDead) {
  SilenceDetector detector(Timing(1, 10));
  detector.Expect(kWorker, Seconds(0));
  detector.Expect(kServer, Seconds(0));
  std::vector<NodeId> told;
  double now = 0;
  for (; told.empty() && now < 100; now += 5) {
    detector.Heard(kServer, Seconds(now));
    told = Ids(detector.Check(Seconds(now)));
  }
  EXPECT_THAT(told, testing::ElementsAre(kWorker));
  EXPECT_LE(now, 25);  // two periods and a check
}

TEST(SilenceDetectorTest, IgnoresWhomItDoesNotExpect) {
  SilenceDetector detector(Timing(1, 3));
  detector.Heard(kWorker, Seconds(0));
  EXPECT_TRUE(Ids(detector.Check(Seconds(100))).empty());
}

// Nodes on machines, and when each of them is beyond reach or dead: random.
class Outage {
 public:
  static constexpr double kInterval = 1;
  static constexpr double kDeadline = 60;  // that is waited for those that are cut off
  static constexpr double kReconnect = 3;

  explicit Outage(uint64_t seed)
      : random_(seed),
        timing_(Timing(kInterval, Draw(9, 15))),
        detector_(timing_, Seconds(kDeadline)) {
    const int machines = 3 + static_cast<int>(random_() % 4);
    const int nodes = machines + static_cast<int>(random_() % 8);
    for (int i = 0; i < nodes; ++i) {
      const NodeId id{Role::kWorker, i};
      const int machine = i % machines;  // 0 is the scheduler's own
      beats_[id] = Draw(0, kInterval);
      machines_[id] = machine;
      detector_.Expect(id, Seconds(0), machine == 0 ? "" : "machine " + std::to_string(machine));
    }
  }

  double Draw(double from, double to) { return std::uniform_real_distribution(from, to)(random_); }
  double allowed() const { return ToSeconds(timing_.allowed_silence()); }
  NodeId AnyElsewhere() {
    while (true) {
      const auto found = std::next(beats_.begin(), static_cast<long>(random_() % beats_.size()));
      if (machines_.at(found->first) != 0) return found->first;
    }
  }
  std::vector<NodeId> Elsewhere() const {
    std::vector<NodeId> ids;
    for (const auto& [id, machine] : machines_) {
      if (machine != 0) ids.push_back(id);
    }
    return ids;
  }

  // Heartbeats of other machines are lost from `begin` to `end`. Then each connection lies idle for
  // up to as long again, or is made anew.
  void CutOff(double begin, double end) {
    cut_begin_ = begin;
    for (const NodeId& id : Elsewhere())
      heard_again_[id] = end + Draw(0, std::min(end - begin, kReconnect));
  }
  void Die(const NodeId& id, double when) { died_[id] = when; }

  // Who was given up, and when.
  std::map<NodeId, double> Run(double until) {
    std::map<NodeId, double> given_up;
    for (double now = 0; now < until; now += ToSeconds(timing_.check_interval())) {
      for (auto& [id, next] : beats_) {
        if (next > now) continue;
        next += kInterval;
        const auto again = heard_again_.find(id);
        const bool lost = again != heard_again_.end() && now >= cut_begin_ && now < again->second;
        const bool dead = died_.contains(id) && now >= died_.at(id);
        if (!lost && !dead) detector_.Heard(id, Seconds(now));
      }
      for (const NodeId& id : Ids(detector_.Check(Seconds(now)))) given_up.try_emplace(id, now);
    }
    return given_up;
  }

 private:
  std::mt19937_64 random_;
  HeartbeatTiming timing_;
  SilenceDetector detector_;
  std::map<NodeId, double> beats_;  // when the next one leaves
  std::map<NodeId, int> machines_;
  double cut_begin_ = 0;
  std::map<NodeId, double> heard_again_;
  std::map<NodeId, double> died_;
};

constexpr uint64_t kOutages = 300;

TEST(SilenceDetectorTest, WhoeverIsCutOffFromAllOtherMachinesGivesUpNobody) {
  for (uint64_t seed = 0; seed < kOutages; ++seed) {
    Outage outage(seed);
    const double begin = outage.Draw(0, 30);
    // Any time up to that which is waited; less, as the last heartbeat may be an interval old.
    const double longest = Outage::kDeadline - Outage::kReconnect - 2 * Outage::kInterval;
    outage.CutOff(begin, begin + outage.Draw(0, longest));
    EXPECT_THAT(outage.Run(300), testing::IsEmpty()) << "seed " << seed;
  }
}

TEST(SilenceDetectorTest, WhoDiesWhileTheNetworkIsWholeIsGivenUpInTime) {
  for (uint64_t seed = 0; seed < kOutages; ++seed) {
    Outage outage(seed);
    const NodeId dead = outage.AnyElsewhere();
    const double when = outage.Draw(0, 30);
    outage.Die(dead, when);
    const std::map<NodeId, double> given_up = outage.Run(100);
    ASSERT_EQ(given_up.size(), 1u) << "seed " << seed;
    EXPECT_LE(given_up.at(dead), when + outage.allowed() + Outage::kInterval) << "seed " << seed;
    EXPECT_GE(given_up.at(dead), when + outage.allowed() - Outage::kInterval) << "seed " << seed;
  }
}

TEST(SilenceDetectorTest, WhoDiesDuringACutIsGivenUpAfterIt) {
  for (uint64_t seed = 0; seed < kOutages; ++seed) {
    Outage outage(seed);
    const double begin = outage.Draw(0, 30);
    const double length = outage.Draw(0, 50);
    const NodeId dead = outage.AnyElsewhere();
    outage.CutOff(begin, begin + length);
    outage.Die(dead, begin + outage.Draw(0, length));
    const std::map<NodeId, double> given_up = outage.Run(300);
    ASSERT_EQ(given_up.size(), 1u) << "seed " << seed;
    const double latest =
        begin + length + Outage::kReconnect + outage.allowed() + 2 * Outage::kInterval;
    EXPECT_LE(given_up.at(dead), latest) << "seed " << seed;
  }
}

TEST(SilenceDetectorTest, ACutThatDoesNotHealEndsInTime) {
  for (uint64_t seed = 0; seed < kOutages; ++seed) {
    Outage outage(seed);
    const double begin = outage.Draw(0, 30);
    outage.CutOff(begin, 1000);
    const std::map<NodeId, double> given_up = outage.Run(200);
    EXPECT_EQ(given_up.size(), outage.Elsewhere().size()) << "seed " << seed;
    for (const auto& [id, when] : given_up) {
      EXPECT_GE(when, begin + Outage::kDeadline - Outage::kInterval) << "seed " << seed;
      EXPECT_LE(when, begin + Outage::kDeadline + Outage::kInterval) << "seed " << seed;
    }
  }
}

// Of two machines each can be the one that is cut off; and none is while something comes.
TEST(SilenceDetectorTest, OneOtherMachineOrOneThatIsHeardIsNoSignOfACut) {
  for (const bool two : {false, true}) {
    SilenceDetector detector(Timing(1, 10), Seconds(60));
    detector.Expect(kServer, Seconds(0));  // on this machine
    detector.Expect(kWorker, Seconds(0), "a");
    if (two) detector.Expect({Role::kWorker, 2}, Seconds(0), "b");
    std::vector<NodeId> told;
    double now = 0;
    for (; told.empty() && now < 30; now += 0.25) {
      detector.Heard(kServer, Seconds(now));
      if (two) detector.HeardElsewhere(Seconds(now));
      told = Ids(detector.Check(Seconds(now)));
    }
    EXPECT_FALSE(told.empty());
    EXPECT_LE(now, 10);
  }
}

// With nobody on its own machine it would be left with no node at all.
TEST(SilenceDetectorTest, TheOnlyMachineThatHasNodesIsWaitedFor) {
  SilenceDetector detector(Timing(1, 10), Seconds(60));
  detector.Expect(kWorker, Seconds(0), "a");
  double now = 0;
  while (Ids(detector.Check(Seconds(now))).empty()) {
    now += 0.25;
    ASSERT_LT(now, 100);
  }
  EXPECT_NEAR(now, 60, 0.5);
}

Envelope Frame(MessageKind kind, const NodeId& from, uint64_t epoch) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.from = {from, kHeartbeatLane};
  envelope.epoch = epoch;
  return envelope;
}

TEST(HeartbeatMonitorTest, AnswersHeartbeatsOfItsViewOnly) {
  wire::View view;
  view.set_epoch(kEpoch);
  wire::Node* node = view.add_nodes();
  node->set_role(static_cast<uint32_t>(Role::kWorker));
  node->set_rank(1);
  for (const char* endpoint : {"control", "heartbeat", "data"}) node->add_endpoints(endpoint);
  HeartbeatMonitor monitor({.timing = Timing(1, 10)}, view);
  Outbox outbox;
  monitor.OnStart(outbox);
  ASSERT_EQ(outbox.routes.size(), 1u);
  EXPECT_EQ(outbox.routes[0].endpoint, "heartbeat");
  EXPECT_EQ(outbox.routes[0].lost_after, Timing(1, 10).reconnect_after());

  outbox.Clear();
  monitor.OnMessage(Frame(MessageKind::kHeartbeat, kWorker, kEpoch + 1), outbox);
  monitor.OnMessage(Frame(MessageKind::kHeartbeatAck, kWorker, kEpoch), outbox);
  EXPECT_TRUE(outbox.messages.empty());
  monitor.OnMessage(Frame(MessageKind::kHeartbeat, kWorker, kEpoch), outbox);
  ASSERT_EQ(outbox.messages.size(), 1u);
  EXPECT_EQ(outbox.messages[0].kind, MessageKind::kHeartbeatAck);
  EXPECT_EQ(outbox.messages[0].to, (Address{kWorker, kHeartbeatLane}));
  EXPECT_EQ(outbox.messages[0].epoch, kEpoch);
}

TEST(HeartbeatMonitorTest, AfterACutAllHaveAsMuchTimeAsTheirConnectionsMayNeed) {
  wire::View view;
  view.set_epoch(kEpoch);
  wire::Node* node = view.add_nodes();
  node->set_role(static_cast<uint32_t>(Role::kWorker));
  for (const char* endpoint : {"control", "heartbeat", "data"}) node->add_endpoints(endpoint);
  for (const bool after_cut : {false, true}) {
    SCOPED_TRACE(after_cut);
    const HeartbeatTiming timing = Timing(1, 3);
    HeartbeatMonitor monitor({.timing = timing, .after_cut = after_cut}, view);
    Duration given_up_after{};
    for (Time now = Seconds(100); given_up_after == Duration::zero(); now += Seconds(0.25)) {
      ASSERT_LT(now, Seconds(200));
      Outbox outbox;
      outbox.now = now;
      if (now == Seconds(100)) {
        monitor.OnStart(outbox);
      } else {
        monitor.OnTimer(2, outbox);
      }
      for (const Envelope& envelope : outbox.messages) {
        if (envelope.kind != MessageKind::kPeerSilent) continue;
        given_up_after = now - Seconds(100);
        EXPECT_EQ(envelope.epoch, kEpoch);
      }
    }
    EXPECT_EQ(given_up_after, after_cut ? timing.heard_again_within()
                                        : timing.allowed_silence() + timing.check_interval());
  }
}

TEST(HeartbeatMonitorTest, TellsWhoseHeartbeatIsOverdueWheneverThatHasChanged) {
  wire::View view;
  view.set_epoch(kEpoch);
  for (int rank = 0; rank < 2; ++rank) {
    wire::Node* node = view.add_nodes();
    node->set_role(static_cast<uint32_t>(Role::kWorker));
    node->set_rank(rank);
    for (const char* endpoint : {"control", "heartbeat", "data"}) node->add_endpoints(endpoint);
  }
  HeartbeatMonitor monitor({.timing = Timing(1, 100), .tells_overdue = true}, view);
  std::vector<std::pair<double, std::vector<int>>> told;  // seconds, ranks
  // Worker 0 beats all the time; worker 1 does not between seconds 10 and 20.
  for (int quarter = 0; quarter < 120; ++quarter) {
    Outbox outbox;
    outbox.now = Seconds(0.25 * quarter);
    if (quarter == 0) monitor.OnStart(outbox);
    const bool stopped = quarter >= 40 && quarter < 80;
    if (quarter % 4 == 0) {
      monitor.OnMessage(Frame(MessageKind::kHeartbeat, {Role::kWorker, 0}, kEpoch), outbox);
      if (!stopped) {
        monitor.OnMessage(Frame(MessageKind::kHeartbeat, {Role::kWorker, 1}, kEpoch), outbox);
      }
    }
    monitor.OnTimer(2, outbox);
    for (const Envelope& envelope : outbox.messages) {
      if (envelope.kind != MessageKind::kOverdue) continue;
      wire::Silent silent;
      ASSERT_TRUE(silent.ParseFromString(envelope.body.ToString()));
      auto& [seconds, ranks] = told.emplace_back(ToSeconds(outbox.now), std::vector<int>());
      for (const wire::Node& node : silent.nodes()) ranks.push_back(node.rank());
    }
  }
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0], std::pair(11.25, std::vector{1}));  // two intervals after the last beat
  EXPECT_EQ(told[1], std::pair(20.0, std::vector<int>()));
}

TEST(HeartbeatSenderTest, BeatsAnIntervalAndReportsASilentScheduler) {
  HeartbeatSender sender(Timing(1, 4), kEpoch);
  std::map<TimerId, Time> timers;
  int beats = 0;
  double reported = 0;
  Outbox outbox;
  sender.OnStart(outbox);
  while (reported == 0) {
    for (const Outbox::Timer& timer : outbox.timers) timers[timer.id] = outbox.now + *timer.delay;
    for (const Envelope& envelope : outbox.messages) {
      if (envelope.kind == MessageKind::kHeartbeat) ++beats;
      if (envelope.kind == MessageKind::kPeerSilent) reported = ToSeconds(outbox.now);
    }
    const auto next = std::min_element(timers.begin(), timers.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    ASSERT_NE(next, timers.end());
    outbox.Clear();
    outbox.now = next->second;
    const TimerId id = next->first;
    timers.erase(next);
    // The scheduler answers until 10 s; answers of another epoch do not count.
    const uint64_t epoch = outbox.now <= Seconds(10) ? kEpoch : kEpoch + 1;
    sender.OnMessage(Frame(MessageKind::kHeartbeatAck, kScheduler, epoch), outbox);
    sender.OnTimer(id, outbox);
  }
  EXPECT_GT(reported, 13);
  EXPECT_LE(reported, 13.5);
  EXPECT_EQ(beats, 14);  // at 0, 1, ... 13 s
}

}  // namespace
}  // namespace poseidon
