// Training with staleness: no gradient is lost or applied twice, and all workers end with the same
// parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/simulation/socket_training.h"
#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

// A training under parameter servers whose gradients do not depend on the parameters: however late
// they are applied, plain SGD comes to the same end. The network delays and repeats frames.
SimulatedClusterOptions LinearTraining(uint64_t seed, int staleness) {
  const int workers = 1 + static_cast<int>(seed % 6);
  SimulatedClusterOptions options =
      SmallTraining(workers, 1 + static_cast<int>(seed % 3),
                    {DenseLayer("conv", 33), InnerProductLayer("fc", 4, 5, 2)}, 8,
                    std::chrono::microseconds(100));
  options.work.arithmetic.gradient = [](int rank, int64_t iteration, int layer,
                                        std::span<const float> /*values*/,
                                        const GradientBuffers& gradient) {
    for (size_t i = 0; i < gradient.dense.size(); ++i) {
      gradient.dense[i] = 0.01F * static_cast<float>((rank + 1) * (iteration + 2) * (layer + 1)) +
                          0.001F * static_cast<float>(i);
    }
  };
  Communication& communication = *options.job.mutable_communication();
  communication.set_policy(Communication::ALL_PS);
  communication.set_deterministic(false);
  communication.set_staleness(staleness);
  communication.set_kv_pair_bytes(40);
  options.network.seed = seed;
  options.network.faults = {
      .drop = 0, .duplicate = 0.1, .delay = 0.3, .max_delay = std::chrono::milliseconds(2)};
  options.network.fault_filter = IsData;
  return options;
}

TEST(StalenessTest, EveryGradientCountsOnceAndAllEndAlike) {
  for (const int staleness : {0, 1, 3, -1}) {
    for (uint64_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE("staleness " + std::to_string(staleness) + ", seed " + std::to_string(seed));
      const SimulatedClusterOptions options = LinearTraining(seed, staleness);
      const int workers = options.job.cluster().workers();
      SimulatedCluster cluster(options);
      ASSERT_TRUE(cluster.Run(kForever));
      ExpectAllEnded(cluster, ExitCode::kSuccess);
      const Parameters parameters = ParametersOf(cluster, 0);
      for (int rank = 1; rank < workers; ++rank) EXPECT_EQ(ParametersOf(cluster, rank), parameters);
      EXPECT_LT(Difference(parameters, TrainSerially(options.work, workers)), 2e-6);
      if (HasFailure()) return;
    }
  }
}

TEST(StalenessTest, AnEndThatNobodyKnowsIsRefused) {
  for (const int staleness : {1, -1}) {
    SimulatedClusterOptions options = LinearTraining(/*seed=*/1, staleness);
    options.work.tells_iterations = false;
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kConfigError);
    EXPECT_THAT(cluster.node({Role::kScheduler, 0}).end->reason(),
                testing::HasSubstr("has not said how many iterations"));
  }
}

TEST(StalenessTest, NumbersOfAnIterationAreNotForSeveral) {
  SimulatedClusterOptions options = LinearTraining(/*seed=*/1, /*staleness=*/1);
  options.work.model.mutable_update_rule()->set_type("TorchSGD");
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kConfigError);
  EXPECT_THAT(cluster.node({Role::kScheduler, 0}).end->reason(),
              testing::HasSubstr("the numbers of the workers' optimizers"));
}

// Delayed frames hold up everybody in BSP; with staleness only the exchange that they are part of.
TEST(StalenessTest, HidesDelays) {
  const auto finish = [](int staleness) {
    Time sum{};
    for (uint64_t seed = 0; seed < 10; ++seed) {
      SimulatedClusterOptions options = LinearTraining(seed, staleness);
      options.work.iterations = 40;
      SimulatedCluster cluster(options);
      EXPECT_TRUE(cluster.Run(kForever));
      sum += cluster.trainer(0).finished;
    }
    return ToSeconds(sum);
  };
  const double bsp = finish(0);
  EXPECT_LT(finish(2), 0.95 * bsp);
  EXPECT_LT(finish(-1), 0.95 * bsp);
}

// Whatever is lost, also of the last exchange, which may take as long as the slowest worker
// computes.
TEST(StalenessTest, NoLostFramesLetAJobWaitForEver) {
  constexpr double kSeconds = 5;
  int lost_frames = 0;
  for (int index = 0; index < 300; ++index) {
    for (const int staleness : {1, 3, -1}) {
      const uint64_t seed = index % 6;  // of as many workers, and one
      SimulatedClusterOptions options = LinearTraining(seed, staleness);
      options.job.mutable_communication()->set_stall_deadline_seconds(kSeconds);
      options.work.model.set_iterations(options.work.iterations);
      options.network.faults = {.drop = 1};
      const int count = 1 << index % 7;
      std::string lost;
      options.network.fault_filter = [&, seen = 0](const Envelope& envelope) mutable {
        if (!IsData(envelope)) return false;
        const bool loses = index <= seen && seen < index + count;
        ++seen;
        if (!loses) return false;
        lost = KindName(envelope.kind) + " of iteration " + std::to_string(envelope.iteration);
        return true;
      };
      SimulatedCluster cluster(options);
      EXPECT_TRUE(cluster.Run(Time(Seconds(10 * kSeconds))))
          << "staleness " << staleness << ", seed " << seed << ", " << count << " data frames from "
          << index << " on: " << lost;
      if (!lost.empty()) ++lost_frames;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(lost_frames, 300);
}

// Over sockets, as a program there gives up a wait by itself, after three stall deadlines.
TEST(StalenessTest, TheFastestAwaitsTheSlowestHoweverManyIterationsThatHasLeft) {
  SimulatedClusterOptions options = LinearTraining(/*seed=*/1, /*staleness=*/-1);
  options.job.mutable_communication()->set_stall_deadline_seconds(1);
  options.work.model.set_iterations(options.work.iterations);
  const auto train = [](WorkerSession& session, const TrainingWork& work) {
    const int layers = work.model.layers_size();
    while (session.iteration() < work.iterations) {
      for (int layer = 0; layer < layers; ++layer) session.WaitFresh(layer);
      if (session.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(450));
      for (int layer = layers - 1; layer >= 0; --layer) {
        work.arithmetic.gradient(session.rank(), session.iteration(), layer, session.values(layer),
                                 session.gradient(layer));
        session.GradientReady(layer);
      }
      // Some programs wait for the next values before they end an iteration.
      for (int layer = 0; layer < layers; ++layer) {
        session.WaitFresh(layer, session.iteration() + 1);
      }
      session.EndIteration({});
    }
    Parameters parameters;
    for (int layer = 0; layer < layers; ++layer) {
      const std::span<float> values = session.values(layer);
      parameters.emplace_back(values.begin(), values.end());
    }
    return parameters;
  };
  EXPECT_EQ(options.job.cluster().workers(), 2);
  TrainOverSockets(options, nullptr, train);
}

}  // namespace
}  // namespace poseidon
