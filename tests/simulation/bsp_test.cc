// Bulk-synchronous training equals serial training, whatever the model, the plan and the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

constexpr uint64_t kSeeds = 300;
// A few float32 roundings of sums of up to nine gradients, through up to six iterations.
constexpr double kRounding = 2e-5;

// Runs to the end and gives worker 0's parameters; the others' must be the same bits.
Parameters Train(const SimulatedClusterOptions& options) {
  SimulatedCluster cluster(options);
  EXPECT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  if (testing::Test::HasFailure()) return {};
  const Parameters parameters = ParametersOf(cluster, 0);
  for (int rank = 1; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(ParametersOf(cluster, rank), parameters) << "worker " << rank;
  }
  return parameters;
}

void AddDisorder(uint64_t seed, SimulatedClusterOptions& options) {
  options.network.seed = seed;
  options.network.faults = {
      .drop = 0, .duplicate = 0.1, .delay = 0.3, .max_delay = std::chrono::milliseconds(2)};
  // Sockets keep the order of control frames and lose none.
  options.network.fault_filter = IsData;
}

TEST(BspTest, EqualsSerialTraining) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    if (seed % 2 == 1) AddDisorder(seed, options);
    const Parameters expected = TrainSerially(options.work, options.job.cluster().workers());
    EXPECT_LT(Difference(Train(options), expected), kRounding);
    if (HasFailure()) return;
  }
}

TEST(BspTest, DeterministicRunsGiveTheSameBits) {
  for (uint64_t seed = 0; seed < kSeeds / 3; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    options.job.mutable_communication()->set_deterministic(true);
    const Parameters in_order = Train(options);
    for (uint64_t disorder = 1; disorder <= 2; ++disorder) {
      AddDisorder(disorder, options);
      EXPECT_EQ(Train(options), in_order);
    }
    if (HasFailure()) return;
  }
}

// That sums in order of arrival differ shows that the test above can see disorder.
TEST(BspTest, DisorderChangesBitsWithoutDeterminism) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SimulatedClusterOptions options =
        SmallTraining(7, 2, {DenseLayer("a", 50)}, 5, std::chrono::microseconds(100));
    options.job.mutable_communication()->set_deterministic(false);
    const Parameters in_order = Train(options);
    AddDisorder(seed, options);
    if (Train(options) != in_order) ++changed;
  }
  EXPECT_GT(changed, 10);
}

}  // namespace
}  // namespace poseidon
