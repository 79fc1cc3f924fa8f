// A job is asked to end training early, and all workers do so before the same iteration.
#include <gtest/gtest.h>

#include <random>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

constexpr NodeId kScheduler{Role::kScheduler, 0};

struct Stopped {
  int64_t iterations = 0;
  Parameters parameters;  // worker 0's; the others' were the same bits
  int job_exit_code = 0;
};

// All nodes have ended well, with as many iterations each.
Stopped ExpectAllStopped(const SimulatedClusterOptions& options, SimulatedCluster& cluster) {
  EXPECT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  if (testing::Test::HasFailure()) return {};
  Stopped stopped;
  stopped.iterations = static_cast<int64_t>(cluster.trainer(0).iterations.size());
  stopped.parameters = ParametersOf(cluster, 0);
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(cluster.trainer(rank).iterations.size(), static_cast<size_t>(stopped.iterations));
    EXPECT_EQ(ParametersOf(cluster, rank), stopped.parameters) << "worker " << rank;
  }
  stopped.job_exit_code = cluster.node(kScheduler).end->job_exit_code();
  return stopped;
}

Time MomentOf(const SimulatedClusterOptions& options, std::mt19937_64& random) {
  SimulatedCluster cluster(options);
  EXPECT_TRUE(cluster.Run(kForever));
  const Time begin = cluster.trainer(0).iterations.front().begin;
  const Duration length = cluster.trainer(0).finished - begin;
  return begin + Duration(random() % static_cast<uint64_t>(length.count() + 1));
}

TEST(StopTest, TheParametersAreThoseOfATrainingThatWasAsLong) {
  int early = 0;
  constexpr uint64_t kTrainings = 25;
  for (uint64_t seed = 0; seed < kTrainings; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    options.work.iterations += 6;
    options.work.model.set_iterations(options.work.iterations);
    SimulatedCluster cluster(options);
    AskToStopAt(MomentOf(options, random), cluster);
    // Another plan is on its way, or is asked for when it is too late.
    if (seed % 3 == 0) AskAt(MomentOf(options, random), RandomPlan(options, seed), cluster);
    const Stopped stopped = ExpectAllStopped(options, cluster);
    if (testing::Test::HasFailure()) return;
    const bool stopped_early = stopped.iterations < options.work.iterations;
    EXPECT_EQ(stopped.job_exit_code, stopped_early ? static_cast<int>(ExitCode::kInterrupted) : 0);
    early += stopped_early ? 1 : 0;
    options.work.iterations = stopped.iterations;
    const int workers = options.job.cluster().workers();
    EXPECT_LE(Difference(stopped.parameters, TrainSerially(options.work, workers)),
              RoundingBound(options.work, workers));
  }
  EXPECT_GT(early, static_cast<int>(kTrainings) / 2);
}

SimulatedClusterOptions Uniform(int staleness) {
  SimulatedClusterOptions options =
      SmallTraining(3, 2, {DenseLayer("a", 50), InnerProductLayer("b", 6, 5, 2)}, 12,
                    std::chrono::microseconds(100));
  options.job.mutable_communication()->set_policy(Communication::ALL_PS);
  options.job.mutable_communication()->set_staleness(staleness);
  options.work.model.set_iterations(options.work.iterations);
  return options;
}

void ExpectEndAt(Time when, const SimulatedClusterOptions& options) {
  SimulatedCluster cluster(options);
  AskToStopAt(when, cluster);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kInterrupted);
}

Time BeginOf(const SimulatedClusterOptions& options) {
  SimulatedCluster cluster(options);
  EXPECT_TRUE(cluster.Run(kForever));
  return cluster.trainer(0).iterations.front().begin;
}

TEST(StopTest, BeforeTrainingHasBegunTheJobEndsAtOnce) {
  ExpectEndAt(BeginOf(Uniform(0)) / 2, Uniform(0));
}

TEST(StopTest, AJobWhoseWorkersRunApartEndsAtOnce) {
  const SimulatedClusterOptions options = Uniform(3);
  ExpectEndAt(BeginOf(options) + std::chrono::microseconds(500), options);
}

}  // namespace
}  // namespace poseidon
