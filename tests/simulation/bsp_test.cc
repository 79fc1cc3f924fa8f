// Bulk-synchronous training equals serial training, whatever the model, the plan and the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuickSeeds = 45;
constexpr uint64_t kSeeds = 300;

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

void ExpectSerialTraining(uint64_t begin, uint64_t end) {
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    if (seed % 2 == 1) AddDisorder(seed, options);
    const int workers = options.job.cluster().workers();
    EXPECT_LE(Difference(Train(options), TrainSerially(options.work, workers)),
              RoundingBound(options.work, workers));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(BspTest, EqualsSerialTraining) { ExpectSerialTraining(0, kQuickSeeds); }
TEST(BspTest, SlowEqualsSerialTraining) { ExpectSerialTraining(kQuickSeeds, kSeeds); }

// What the bound of the test above must not hide: one gradient of one iteration counted twice.
TEST(BspTest, RoundingIsLessThanOneGradient) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    TrainingWork work = RandomTraining(seed).work;
    const double bound = RoundingBound(work, 4);
    const Parameters expected = TrainSerially(work, 4);
    const bool trains = Difference(expected, TrainSerially(work, 3)) > 0;
    work.arithmetic.gradient = [gradient = work.arithmetic.gradient](
                                   int rank, int64_t iteration, int layer,
                                   std::span<const float> values, const GradientBuffers& buffers) {
      gradient(rank, iteration, layer, values, buffers);
      if (rank != 1 || iteration != 0) return;
      for (float& value : buffers.dense) value *= 2;
    };
    if (trains) {
      EXPECT_GT(Difference(TrainSerially(work, 4), expected), bound);
    }
  }
}

void ExpectTheSameBits(uint64_t begin, uint64_t end) {
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    options.job.mutable_communication()->set_deterministic(true);
    const Parameters in_order = Train(options);
    for (uint64_t disorder = 1; disorder <= 2; ++disorder) {
      AddDisorder(disorder, options);
      EXPECT_EQ(Train(options), in_order);
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(BspTest, DeterministicRunsGiveTheSameBits) { ExpectTheSameBits(0, kQuickSeeds / 3); }
TEST(BspTest, SlowDeterministicRunsGiveTheSameBits) {
  ExpectTheSameBits(kQuickSeeds / 3, kSeeds / 3);
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
