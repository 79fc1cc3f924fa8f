#include "transport/membership/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
  HeartbeatMonitor monitor(Timing(1, 10), view);
  Outbox outbox;
  monitor.OnStart(outbox);
  ASSERT_EQ(outbox.routes.size(), 1u);
  EXPECT_EQ(outbox.routes[0].endpoint, "heartbeat");

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

TEST(HeartbeatMonitorTest, TellsWhoseHeartbeatIsOverdueWheneverThatHasChanged) {
  wire::View view;
  view.set_epoch(kEpoch);
  for (int rank = 0; rank < 2; ++rank) {
    wire::Node* node = view.add_nodes();
    node->set_role(static_cast<uint32_t>(Role::kWorker));
    node->set_rank(rank);
    for (const char* endpoint : {"control", "heartbeat", "data"}) node->add_endpoints(endpoint);
  }
  HeartbeatMonitor monitor(Timing(1, 100), view, true);
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
