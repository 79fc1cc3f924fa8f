// A traitor may end the job. It may not bring a node down, nor keep the job from ending.
#include "tests/simulation/recovery/traitor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>

#include "core/random.h"
#include "proto/wire.pb.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuick = 18;
constexpr uint64_t kSlow = 2000;

// A job's deadlines come one behind the other (heartbeats 10 s, stalls 5 s, joining 300 s, each up
// to a few times); what lasts longer hangs.
constexpr Duration kHangs = Seconds(3000);

// Whether the job has ended well for all.
bool ExpectTheJobEnds(SimulatedClusterOptions options, uint64_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  options.job.mutable_communication()->set_stall_deadline_seconds(5);
  SimulatedCluster undisturbed(options);
  EXPECT_TRUE(undisturbed.Run(kForever));
  const Duration span = undisturbed.runtime().now();
  Random random(seed);
  Traitor traitor([&](uint64_t below) { return random.Below(below); }, options);
  SimulatedCluster cluster(options);
  traitor.Disturb(cluster, 1 + static_cast<int>(seed % 20), span);
  EXPECT_TRUE(cluster.Run(Time(kHangs + span))) << traitor.said();
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    if (!cluster.node(i).end || cluster.node(i).end->exit_code() != 0) return false;
  }
  return true;
}

void TryTraitors(uint64_t begin, uint64_t end) {
  int good = 0;
  int bad = 0;
  for (uint64_t seed = begin; seed < end && !testing::Test::HasFailure(); ++seed) {
    for (const auto& options : {RandomTraining(seed), RecoveringTraining(seed)}) {
      ++(ExpectTheJobEnds(options, seed) ? good : bad);
    }
  }
  std::cout << good << " jobs ended well, " << bad << " badly\n";
  // What is said is neither always nonsense nor always believed.
  EXPECT_GT(good, 0);
  EXPECT_GT(bad, 0);
}

TEST(TraitorTest, MayEndTheJobAndNothingElse) { TryTraitors(0, kQuick); }
TEST(TraitorTest, SlowMayEndTheJobAndNothingElse) { TryTraitors(kQuick, SlowSeeds(kSlow)); }

// The job may begin as worker 0 wants or end, but not where worker 0 has nothing.
TEST(TraitorTest, WhoDeclaresInTheFirstWorkersNameEndsTheJobAtMost) {
  int refused = 0;
  for (const int microseconds : {0, 1, 10, 100, 1000}) {
    SimulatedClusterOptions options = RandomTraining(1);
    std::unique_ptr<SimulatedCluster> cluster;
    bool said = false;
    options.network.faults.drop = 1;  // only so that the filter is asked
    options.network.fault_filter = [&](const Envelope& envelope) {
      const bool declares = envelope.kind == MessageKind::kDeclareModel;
      if (said || !declares || envelope.from.node != NodeId{Role::kWorker, 0}) return false;
      wire::Declaration declaration;
      EXPECT_TRUE(declaration.ParseFromString(envelope.body.ToString()));
      declaration.mutable_inputs()->set_first_iteration(int64_t{1} << 31);
      Envelope changed = envelope;
      changed.body = Payload::FromString(declaration.SerializeAsString());
      cluster->runtime().At(cluster->runtime().now() + std::chrono::microseconds(microseconds),
                            [&cluster, changed] { Traitor::Say(*cluster, changed); });
      said = true;
      return false;
    };
    cluster = std::make_unique<SimulatedCluster>(options);
    EXPECT_TRUE(cluster->Run(Time(kHangs)));
    EXPECT_TRUE(said);
    for (size_t i = 0; i < cluster->nodes(); ++i) {
      const auto& end = cluster->node(i).end;
      ASSERT_TRUE(end);
      if (end->reason().find("see that no other process has its rank") != std::string::npos) {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace poseidon
