// What becomes of a job when frames or nodes are lost: it ends for everybody, in time, and says why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr double kStallDeadline = 5;
constexpr double kHeartbeatDeadline = 10;

bool IsData(const Envelope& envelope) { return envelope.priority >= 0; }

// 4 workers, 2 servers; PS layers below an SFB layer.
SimulatedClusterOptions MixedTraining(int64_t iterations, Duration step) {
  SimulatedClusterOptions options = SmallTraining(
      4, 2, {DenseLayer("conv", 40), DenseLayer("scale", 3), InnerProductLayer("fc", 30, 40, 2)},
      iterations, step);
  options.job.mutable_communication()->set_kv_pair_bytes(64);
  options.job.mutable_communication()->set_lanes(2);
  options.job.mutable_communication()->set_stall_deadline_seconds(kStallDeadline);
  options.job.mutable_communication()->set_heartbeat_deadline_seconds(kHeartbeatDeadline);
  return options;
}

void ExpectAllEnded(const SimulatedCluster& cluster, ExitCode code) {
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed) continue;
    ASSERT_TRUE(node.end) << node.id.ToString() << " has not ended";
    EXPECT_EQ(node.end->exit_code(), static_cast<int>(code))
        << node.id.ToString() << ": " << node.end->reason();
  }
}

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
  options.network.fault_filter = [index, &lost, seen = int64_t{0}](
                                     const Envelope& envelope) mutable {
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
    // Whoever sent it looks guilty to the receiver, the receiver to all who wait for it next.
    EXPECT_THAT(reason, AnyOf(HasSubstr("from " + lost.envelope.from.node.ToString()),
                              HasSubstr("from " + lost.envelope.to.node.ToString()),
                              HasSubstr(lost.envelope.to.node.ToString() + " (machine")));
    EXPECT_THAT(reason, AnyOf(HasSubstr("iteration " + std::to_string(lost.envelope.iteration)),
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

}  // namespace
}  // namespace poseidon
