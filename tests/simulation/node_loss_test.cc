// Nodes that die or fall silent: the others know by the heartbeat deadline, and nobody is accused
// who lives.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "tests/simulation/training_case.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

// Over a minute of training, four workers and two servers.
SimulatedClusterOptions LongTraining() { return MixedTraining(60, std::chrono::milliseconds(200)); }

void SetHeartbeat(double interval, double deadline, SimulatedClusterOptions& options) {
  options.job.mutable_communication()->set_heartbeat_interval_seconds(interval);
  options.job.mutable_communication()->set_heartbeat_deadline_seconds(deadline);
}

// How a node is called in the messages of the others.
std::string NameOf(const NodeId& node) {
  return node.role == Role::kScheduler ? "the scheduler at sim://" : node.ToString() + " (machine";
}

void ExpectLossIsTold(const SimulatedClusterOptions& options, const NodeId& victim, Time when) {
  SCOPED_TRACE(victim.ToString() + " dies at " + std::to_string(ToSeconds(when)) + " s");
  SimulatedCluster cluster(options);
  cluster.KillAt(when, victim);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kPeerLost);
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed || !node.end) continue;
    EXPECT_THAT(node.end->reason(), HasSubstr(NameOf(victim))) << node.id.ToString();
    EXPECT_LE(ToSeconds(node.ended - when),
              options.job.communication().heartbeat_deadline_seconds())
        << node.id.ToString();
  }
}

TEST(NodeLossTest, LossOfAnyNodeIsToldToAllByTheDeadline) {
  std::mt19937_64 random(1);
  const SimulatedClusterOptions base = LongTraining();
  for (const double interval : {0.05, 0.5, 1.0}) {
    for (const double intervals : {3.0, 4.0, 5.5, 10.0}) {
      SimulatedClusterOptions options = base;
      SetHeartbeat(interval, intervals * interval, options);
      for (const NodeSpec& node : options.layout.nodes) {
        const Time when = Seconds(0.5) + Duration(random() % Seconds(40).count());
        ExpectLossIsTold(options, node.id, when);
      }
      if (HasFailure()) return;
    }
  }
}

TEST(NodeLossTest, NobodyIsAccusedBecauseHeartbeatsAreLate) {
  for (const double intervals : {3.0, 4.0, 10.0}) {
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SimulatedClusterOptions options = LongTraining();
      SetHeartbeat(0.5, intervals * 0.5, options);
      options.network.seed = seed;
      options.network.faults.delay = 0.5;
      // Twice, there and back: less than the interval that a heartbeat may be late.
      options.network.faults.max_delay = Seconds(0.24);
      options.network.fault_filter = [](const Envelope& envelope) {
        return envelope.kind == MessageKind::kHeartbeat ||
               envelope.kind == MessageKind::kHeartbeatAck;
      };
      SimulatedCluster cluster(options);
      ASSERT_TRUE(cluster.Run(kForever));
      ExpectAllEnded(cluster, ExitCode::kSuccess);
      if (HasFailure()) return;
    }
  }
}

TEST(NodeLossTest, ANodeCutOffFromTheNetworkEndsToo) {
  SimulatedClusterOptions options = LongTraining();
  const NodeId cut{Role::kWorker, 2};
  bool is_cut = false;
  options.network.faults.drop = 1;
  options.network.fault_filter = [&](const Envelope& envelope) {
    return is_cut && (envelope.from.node == cut || envelope.to.node == cut);
  };
  SimulatedCluster cluster(options);
  cluster.runtime().At(Seconds(7), [&] { is_cut = true; });
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kPeerLost);
  EXPECT_THAT(cluster.node(cut).end->reason(), HasSubstr("the scheduler at sim://"));
  EXPECT_THAT(cluster.node({Role::kWorker, 0}).end->reason(), HasSubstr("worker 2 (machine2"));
  EXPECT_LE(cluster.runtime().now(), Seconds(17));
}

TEST(NodeLossTest, LostNewsOfTheEndIsMadeUpForByTheSchedulersSilence) {
  SimulatedClusterOptions options = MixedTraining(3, std::chrono::milliseconds(1));
  const NodeId unlucky{Role::kServer, 1};
  options.network.faults.drop = 1;
  options.network.fault_filter = [&](const Envelope& envelope) {
    return envelope.kind == MessageKind::kEnd && envelope.to.node == unlucky;
  };
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  EXPECT_EQ(cluster.node({Role::kServer, 0}).end->exit_code(), 0);
  EXPECT_EQ(cluster.node(unlucky).end->exit_code(), static_cast<int>(ExitCode::kPeerLost));
}

// Does one thing when it starts.
class Once : public Actor {
 public:
  explicit Once(std::function<void(Outbox&)> action) : action_(std::move(action)) {}
  void OnStart(Outbox& outbox) override { action_(outbox); }
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    (void)envelope;
    (void)outbox;
  }

 private:
  std::function<void(Outbox&)> action_;
};

constexpr int kSpareLane = 10;

TEST(NodeLossTest, ANodeThatFailsTellsTheOthersWhy) {
  for (const NodeId& failing : {NodeId{Role::kWorker, 2}, NodeId{Role::kServer, 1}}) {
    SimulatedCluster cluster(LongTraining());
    cluster.runtime().At(Seconds(5), [&] {
      cluster.runtime().Attach(
          cluster.process(failing), kSpareLane,
          std::make_unique<Once>([](Outbox&) { throw DataError("the disk is on fire"); }));
    });
    ASSERT_TRUE(cluster.Run(kForever));
    EXPECT_LT(cluster.runtime().now(), Seconds(5.1));
    for (size_t i = 0; i < cluster.nodes(); ++i) {
      const NodeRecord& node = cluster.node(i);
      ASSERT_TRUE(node.end);
      const bool failed = node.id == failing;
      EXPECT_EQ(node.end->exit_code(),
                static_cast<int>(failed ? ExitCode::kDataError : ExitCode::kPeerLost));
      EXPECT_THAT(node.end->reason(), HasSubstr("the disk is on fire"));
      if (!failed) {
        EXPECT_THAT(node.end->reason(), HasSubstr(NameOf(failing)));
      }
    }
  }
}

TEST(NodeLossTest, TheSchedulersProgramStopsTheJob) {
  SimulatedCluster cluster(LongTraining());
  cluster.runtime().At(Seconds(5), [&] {
    cluster.runtime().Attach(cluster.process({Role::kScheduler, 0}), kSpareLane,
                             std::make_unique<Once>([](Outbox& outbox) {
                               outbox.Send(MakeEnvelope(MessageKind::kStop, Here(kControlLane),
                                                        MakeEnd(ExitCode::kInterrupted, "enough")));
                             }));
  });
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kInterrupted);
  EXPECT_LT(cluster.runtime().now(), Seconds(5.1));
}

}  // namespace
}  // namespace poseidon
