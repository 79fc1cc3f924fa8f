// Frames that are lost, repeated, late, foreign or nonsense: what may not matter does not, and what
// stops the training ends it for everybody, in time, with a message that says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr double kStallDeadline = 5;

TEST(FaultsTest, RepeatedFramesAreDroppedAndCounted) {
  SimulatedClusterOptions options = MixedTraining(20, std::chrono::milliseconds(1));
  options.network.faults.duplicate = 0.3;
  options.network.fault_filter = [](const Envelope& envelope) {
    return IsData(envelope) && envelope.to.node.role == Role::kWorker;
  };
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  // Repetitions may still be on their way.
  cluster.runtime().Run(cluster.runtime().now() + options.network.faults.max_delay);
  int64_t dropped = 0;
  for (int rank = 0; rank < 4; ++rank) dropped += cluster.context(rank)->dropped_frames;
  EXPECT_GT(dropped, 100);
  EXPECT_EQ(dropped, cluster.runtime().statistics().duplicated);
}

struct LostFrame {
  Envelope envelope;
  bool lost = false;
};

void LoseDataFrame(int64_t index, LostFrame& lost, SimulatedClusterOptions& options) {
  options.network.faults.drop = 1;
  options.network.fault_filter = [index, &lost,
                                  seen = int64_t{0}](const Envelope& envelope) mutable {
    if (!IsData(envelope) || seen++ != index) return false;
    lost.envelope = envelope;
    lost.lost = true;
    return true;
  };
}

TEST(FaultsTest, LostFrameEndsTheJobAndNamesWhoIsMissing) {
  int lost_frames = 0;
  for (int64_t index = 0; index < 300; ++index) {
    SCOPED_TRACE("data frame " + std::to_string(index));
    SimulatedClusterOptions options = MixedTraining(3, std::chrono::milliseconds(1));
    options.job.mutable_communication()->set_stall_deadline_seconds(kStallDeadline);
    LostFrame lost;
    LoseDataFrame(index, lost, options);
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    if (!lost.lost) {
      ExpectAllEnded(cluster, ExitCode::kSuccess);
      break;
    }
    ++lost_frames;
    SCOPED_TRACE(KindName(lost.envelope.kind) + " from " + lost.envelope.from.ToString() + " to " +
                 lost.envelope.to.ToString() + ", iteration " +
                 std::to_string(lost.envelope.iteration) + ", layer " +
                 std::to_string(lost.envelope.bucket));
    ExpectAllEnded(cluster, ExitCode::kDeadlineExceeded);
    if (HasFailure()) return;
    const std::string reason = cluster.node(0).end->reason();
    if (lost.envelope.kind == MessageKind::kGradient) {
      const int layer = static_cast<int>(lost.envelope.bucket);
      EXPECT_THAT(reason, HasSubstr("of layer " + options.work.model.layers(layer).name() +
                                    ", iteration " + std::to_string(lost.envelope.iteration) +
                                    ", from " + lost.envelope.from.node.ToString()));
    }
    // Whoever sent it looks guilty to the receiver, the receiver to all who wait for it next.
    EXPECT_THAT(reason, AnyOf(HasSubstr("from " + lost.envelope.from.node.ToString()),
                              HasSubstr("from " + lost.envelope.to.node.ToString()),
                              HasSubstr(lost.envelope.to.node.ToString() + " (machine")));
    EXPECT_THAT(reason, AnyOf(HasSubstr("initial values of layer"),
                              HasSubstr("iteration " + std::to_string(lost.envelope.iteration)),
                              HasSubstr("iteration " + std::to_string(lost.envelope.iteration + 1)),
                              HasSubstr("did not finish although others have")));
    // Half of it is patience with servers, a tenth the time between two looks.
    EXPECT_LT(ToSeconds(cluster.runtime().now()), 1.7 * kStallDeadline);
    if (HasFailure()) {
      ADD_FAILURE() << reason;
      return;
    }
  }
  EXPECT_GT(lost_frames, 100);
}

TEST(FaultsTest, ASlowNicSlowsDownAndChangesNothing) {
  SimulatedClusterOptions options = MixedTraining(5, std::chrono::milliseconds(1));
  SimulatedCluster fast(options);
  ASSERT_TRUE(fast.Run(kForever));
  options.layout.machines[2].goodput_bytes_per_second = 1e5;
  SimulatedCluster slow(options);
  ASSERT_TRUE(slow.Run(kForever));
  ExpectAllEnded(slow, ExitCode::kSuccess);
  EXPECT_EQ(ParametersOf(slow, 0), ParametersOf(fast, 0));
  EXPECT_GT(slow.trainer(0).finished, 2 * fast.trainer(0).finished);
}

// Sends envelopes of its own making, whoever it claims to be, while the others train.
class Stranger : public Actor {
 public:
  Stranger(SimulatedCluster& cluster, std::vector<Envelope> envelopes)
      : cluster_(cluster), envelopes_(std::move(envelopes)) {}

  void OnStart(Outbox& outbox) override { outbox.SetTimer(1, std::chrono::milliseconds(1)); }
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    (void)envelope;
    (void)outbox;
  }
  void OnTimer(TimerId timer, Outbox& outbox) override {
    for (const Envelope& envelope : envelopes_) {
      outbox.routes.push_back(
          {envelope.to,
           cluster_.runtime().endpoint(cluster_.process(envelope.to.node), envelope.to.lane)});
      outbox.Send(envelope);
    }
    if (++rounds_ < 20) outbox.SetTimer(timer, std::chrono::milliseconds(1));
  }

 private:
  SimulatedCluster& cluster_;
  std::vector<Envelope> envelopes_;
  int rounds_ = 0;
};

// Every kind of frame to every lane of every node, `make_odd` makes each of them one to be dropped.
std::vector<Envelope> OddFrames(const SimulatedClusterOptions& options,
                                const std::function<void(Envelope&)>& make_odd) {
  std::vector<Envelope> envelopes;
  for (const NodeSpec& node : options.layout.nodes) {
    for (int lane = kControlLane; lane < kFirstDataLane + 2; ++lane) {
      if (node.id.role == Role::kScheduler) continue;
      for (int kind = 2; kind < static_cast<int>(MessageKind::kGradientReady); ++kind) {
        Envelope envelope;
        envelope.kind = static_cast<MessageKind>(kind);
        if (!IsWireKind(envelope.kind)) continue;
        envelope.to = {node.id, lane};
        envelope.priority = 0;
        envelope.epoch = options.epoch;
        envelope.body = Payload::FromString(std::string(64, '?'));
        make_odd(envelope);
        envelopes.push_back(std::move(envelope));
      }
    }
  }
  return envelopes;
}

void ExpectStrangerIgnored(const NodeId& self, const std::function<void(Envelope&)>& make_odd) {
  SimulatedClusterOptions options = MixedTraining(8, std::chrono::milliseconds(1));
  SimulatedCluster alone(options);
  ASSERT_TRUE(alone.Run(kForever));
  SimulatedCluster disturbed(options);
  const SimNode stranger = disturbed.runtime().AddNode(self, 0);
  disturbed.runtime().Attach(stranger, kFirstDataLane,
                             std::make_unique<Stranger>(disturbed, OddFrames(options, make_odd)));
  ASSERT_TRUE(disturbed.Run(kForever));
  ExpectAllEnded(disturbed, ExitCode::kSuccess);
  EXPECT_EQ(ParametersOf(disturbed, 1), ParametersOf(alone, 1));
  EXPECT_GT(disturbed.context(1)->dropped_frames, 0);
}

TEST(FaultsTest, FramesOfAnotherEpochAreDropped) {
  for (const NodeId& self :
       {NodeId{Role::kWorker, 0}, NodeId{Role::kServer, 1}, NodeId{Role::kScheduler, 0}}) {
    SCOPED_TRACE(self.ToString());
    ExpectStrangerIgnored(self, [](Envelope& envelope) { ++envelope.epoch; });
  }
}

TEST(FaultsTest, FramesThatDoNotFitAreDropped) {
  for (const NodeId& self : {NodeId{Role::kWorker, 0}, NodeId{Role::kWorker, 77},
                             NodeId{Role::kServer, 1}, NodeId{Role::kServer, -1}}) {
    SCOPED_TRACE(self.ToString());
    for (const uint32_t odd : {3u, 1000000u, 0x7fffffffu, 0x80000000u, 0xffffffffu}) {
      SCOPED_TRACE(odd);
      ExpectStrangerIgnored(self, [&](Envelope& envelope) { envelope.bucket = odd; });
      if (odd == 3) continue;  // there is a chunk 3
      for (const uint32_t bucket : {0u, 1u, 2u}) {
        ExpectStrangerIgnored(self, [&](Envelope& envelope) {
          envelope.bucket = bucket;
          envelope.chunk = odd;
        });
      }
    }
    for (const int64_t iteration : {int64_t{-1}, int64_t{100}, INT64_MIN, INT64_MAX}) {
      SCOPED_TRACE(iteration);
      ExpectStrangerIgnored(self, [&](Envelope& envelope) { envelope.iteration = iteration; });
    }
    ExpectStrangerIgnored(self, [](Envelope& envelope) { envelope.body = {}; });
  }
}

}  // namespace
}  // namespace poseidon
