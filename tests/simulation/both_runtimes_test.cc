// The same small model, trained by the same actors in virtual time and over real sockets, comes to
// the same bits.
#include <gtest/gtest.h>

#include <thread>

#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "tests/simulation/socket_training.h"
#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

Parameters TrainInVirtualTime(const SimulatedClusterOptions& options) {
  SimulatedCluster cluster(options);
  EXPECT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  return ParametersOf(cluster, 0);
}

TEST(BothRuntimesTest, MixedSchemesComeToTheSameBits) {
  const SimulatedClusterOptions options = MixedTraining(10, std::chrono::microseconds(50));
  EXPECT_EQ(TrainOverSockets(options), TrainInVirtualTime(options));
}

TEST(BothRuntimesTest, RandomTrainingsComeToTheSameBits) {
  // A few: each is up to fifteen nodes on sockets.
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    options.job.mutable_communication()->set_deterministic(true);
    EXPECT_EQ(TrainOverSockets(options), TrainInVirtualTime(options));
  }
}

// In the order of ranks, servers and workers that update sum alike.
TEST(BothRuntimesTest, AnotherPlanDuringTrainingComesToTheSameBits) {
  SimulatedClusterOptions options = MixedTraining(200, std::chrono::microseconds(50));
  options.job.mutable_communication()->set_policy(Communication::ALL_PS);
  options.work.model.mutable_update_rule()->set_base_lr(0.001F);
  options.work.model.mutable_update_rule()->set_momentum(0.9F);
  // So that the training takes longer than this thread to ask.
  options.work.arithmetic.gradient = [gradient = options.work.arithmetic.gradient](
                                         int rank, int64_t iteration, int layer,
                                         std::span<const float> values,
                                         const GradientBuffers& buffers) {
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gradient(rank, iteration, layer, values, buffers);
  };
  Communication other = options.job.communication();
  other.set_kv_pair_bytes(28);
  other.set_update_at(Communication::WORKERS);
  wire::PlanAndModel next;
  *next.mutable_model() = options.work.model;
  *next.mutable_plan() = MakePlan(InformationBook(options.work.model, 4, 2), other);
  EXPECT_EQ(TrainOverSockets(options, &next), TrainInVirtualTime(options));
}

}  // namespace
}  // namespace poseidon
