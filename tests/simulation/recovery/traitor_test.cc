// A traitor may end the job. It may not bring a node down, nor keep the job from ending.
#include "tests/simulation/recovery/traitor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <string>

#include "core/random.h"
#include "tests/simulation/recovery/recovery_case.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuick = 50;
constexpr uint64_t kSlow = 30000;

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
TEST(TraitorTest, SlowMayEndTheJobAndNothingElse) { TryTraitors(kQuick, kSlow); }

}  // namespace
}  // namespace poseidon
