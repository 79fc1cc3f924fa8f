// Nodes of a job die whose workers' programs make the updates when they have the whole gradient
// (clipping, LARS): what holds for other updates holds for these.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

constexpr uint64_t kQuickSeeds = 6;
constexpr uint64_t kSeeds = 500;

// By turns clipping, at a norm that most gradients, some or none exceed, LARS, and both.
SimulatedClusterOptions Deferred(SimulatedClusterOptions options, uint64_t seed) {
  TrainingWork& work = options.work;
  work.model.mutable_update_rule()->set_deferred(true);
  if (seed % 3 != 1) work.deferred.clip_gradients = std::vector{0.3, 2.0, 6.0}[seed / 3 % 3];
  if (seed % 3 != 0) work.deferred.lars.emplace().set_trust_coefficient(0.1F);
  return options;
}

// The updates are others than those of the same job without clipping or LARS, and come to what one
// process computes.
void ExpectWhatOneProcessComputes(uint64_t begin, uint64_t end) {
  int others = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions plain = RecoveringTraining(seed);
    const SimulatedClusterOptions options = Deferred(plain, seed);
    const int workers = options.job.cluster().workers();
    const Parameters found = TrainUndisturbed(options).parameters;
    const double bound = RoundingBound(options.work, workers);
    EXPECT_LE(Difference(found, TrainSerially(options.work, workers)), bound);
    others += Difference(found, TrainSerially(plain.work, workers)) > bound ? 1 : 0;
  }
  EXPECT_GT(others, static_cast<int>(end - begin) / 2);
}

TEST(DeferredRecoveryTest, ComesToWhatOneProcessComputes) {
  ExpectWhatOneProcessComputes(0, kQuickSeeds);
}

TEST(DeferredRecoveryTest, SlowComesToWhatOneProcessComputes) {
  ExpectWhatOneProcessComputes(kQuickSeeds, SlowSeeds(kSeeds));
}

void ExpectRecoveries(uint64_t begin, uint64_t end, int losses, int schedulers) {
  int recoveries = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = Deferred(RecoveringTraining(seed), seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    std::vector<Loss> lost;
    for (int i = 0; i < schedulers; ++i) lost.push_back(faults.Draw(kTheScheduler));
    for (int i = 0; i < losses; ++i) lost.push_back(faults.Draw());
    recoveries += ExpectSameAfter(options, undisturbed, lost);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(recoveries, static_cast<int>(end - begin) / 3) << "the faults hit nothing";
}

TEST(DeferredRecoveryTest, OneLossChangesNothing) { ExpectRecoveries(0, kQuickSeeds, 1, 0); }

TEST(DeferredRecoveryTest, LossesDuringRecoveryChangeNothing) {
  ExpectRecoveries(0, kQuickSeeds, 4, 0);
}

TEST(DeferredRecoveryTest, SlowLossesChangeNothing) {
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 1, 0);
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 4, 0);
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 2, 1);
}

void ExpectLossesAtAnyEnvelope(uint64_t first, uint64_t step, bool pairs, int64_t stride) {
  uint64_t seed = first;
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    const SimulatedClusterOptions options = Deferred(tiny, seed);
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()) +
                 ", deferred as of seed " + std::to_string(seed));
    ExpectLossAtAnyEnvelope(options, pairs, stride);
    if (testing::Test::HasFailure()) return;
    seed += step;
  }
}

// Clipping under one scheme, LARS under the next, both under the one after it.
TEST(DeferredRecoveryTest, ALossAtAnyEnvelopeChangesNothing) {
  ExpectLossesAtAnyEnvelope(3, 4, false, kQuickStride);
}

TEST(DeferredRecoveryTest, SlowLossesAtEveryEnvelopeChangeNothing) {
  for (uint64_t first = 0; first < 3; ++first) {
    ExpectLossesAtAnyEnvelope(first, 0, false, 1);
    ExpectLossesAtAnyEnvelope(first, 0, true, 1);
  }
}

// A loss while the job goes over to another plan, before which all updates are made.
void ExpectPlanChanges(uint64_t begin, uint64_t end) {
  int changed = 0;
  size_t recoveries = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = Deferred(RecoveringTraining(seed), seed);
    const int workers = options.job.cluster().workers();
    Faults faults(seed, options, TrainUndisturbed(options));
    const Loss loss = faults.Draw();
    SimulatedCluster cluster(options);
    const wire::PlanAndModel plan = RandomPlan(options, seed);
    AskAt(loss.when - std::min<Duration>(loss.when, Seconds(0.002)), plan, cluster);
    cluster.KillAt(loss.when, loss.node);
    cluster.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    if (LostAll(cluster, {loss})) continue;
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    if (testing::Test::HasFailure()) return;
    const Parameters first = ParametersOf(cluster, 0);
    EXPECT_LE(Difference(first, TrainSerially(options.work, workers)),
              RoundingBound(options.work, workers));
    for (int rank = 1; rank < workers; ++rank) EXPECT_EQ(ParametersOf(cluster, rank), first);
    if (testing::Test::HasFailure()) return;
    changed += GoesBy(plan, cluster) ? 1 : 0;
    recoveries += cluster.scheduler().recoveries.size();
  }
  EXPECT_GT(changed, 0) << "no plan has changed";
  EXPECT_GT(recoveries, 0u) << "the faults hit nothing";
}

TEST(DeferredRecoveryTest, LossesWhileThePlanChangesChangeNothing) {
  ExpectPlanChanges(0, kQuickSeeds);
}

TEST(DeferredRecoveryTest, SlowLossesWhileThePlanChangesChangeNothing) {
  ExpectPlanChanges(kQuickSeeds, SlowSeeds(kSeeds));
}

// Half of the lost come back, to find that they are needed, or not.
void ExpectShrinking(uint64_t begin, uint64_t end) {
  int shrunk = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = Deferred(Shrinking(RecoveringTraining(seed)), seed);
    Faults faults(seed, options, TrainUndisturbed(options));
    SimulatedCluster cluster(options);
    for (uint64_t i = 0; i <= seed % 2; ++i) {
      const Loss loss = faults.Draw();
      cluster.KillAt(loss.when, loss.node);
      if (loss.when.count() % 2 == 0) {
        cluster.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
      }
    }
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    // Where it does not go well has nothing to do with the updates (ShrinkTest).
    if (cluster.node(kTheScheduler).end->exit_code() != 0) continue;
    ExpectTrained(cluster, options);
    shrunk += LastPlan(cluster).tenures().empty() ? 0 : 1;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(shrunk, static_cast<int>(end - begin) / 5) << "the faults hit nothing";
}

TEST(DeferredRecoveryTest, LossesLeaveTheOthersTraining) { ExpectShrinking(0, kQuickSeeds); }
TEST(DeferredRecoveryTest, SlowLossesLeaveTheOthersTraining) {
  ExpectShrinking(kQuickSeeds, SlowSeeds(kSeeds));
}

// A worker comes and one leaves; every third job's learning rate changes with their number. All
// updates are made before all pause, so that no iteration is done again.
void ExpectElastic(uint64_t begin, uint64_t end) {
  int changes = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = Deferred(Shrinking(RecoveringTraining(seed)), seed);
    const int workers = options.job.cluster().workers();
    Elastic& elastic = *options.job.mutable_elastic();
    elastic.set_max_workers(workers + 1);
    elastic.set_regroup_interval_seconds(0);
    elastic.set_learning_rate(seed / 3 % 3 == 0 ? Elastic::LINEAR : Elastic::KEEP);
    Faults moments(seed, options, TrainUndisturbed(options));
    AddNode({Role::kWorker, workers}, moments.Draw().when, options);
    SimulatedCluster cluster(options);
    AskToLeaveAt(moments.Draw().when,
                 {Role::kWorker, static_cast<int>(seed) % options.job.cluster().workers()},
                 cluster);
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0)
        << cluster.node(kTheScheduler).end->reason();
    ExpectTrained(cluster, options);
    for (const wire::Recovered& recovered : cluster.scheduler().recoveries) {
      EXPECT_EQ(recovered.reached(), recovered.iteration());
      changes += recovered.left_size() + recovered.joined_size();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(changes, static_cast<int>(end - begin) / 3);
}

TEST(DeferredRecoveryTest, WorkersComeAndLeave) { ExpectElastic(0, kQuickSeeds); }
TEST(DeferredRecoveryTest, SlowWorkersComeAndLeave) {
  ExpectElastic(kQuickSeeds, SlowSeeds(kSeeds));
}

}  // namespace
}  // namespace poseidon
