// Nodes of a job die, and it ends as if none had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuickSeeds = 6;
constexpr uint64_t kSeeds = 1000;

// With `schedulers` losses of the scheduler among those of others.
void ExpectRecoveries(uint64_t begin, uint64_t end, int most_losses, int schedulers = 0) {
  int recoveries = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = RecoveringTraining(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    std::vector<Loss> losses;
    for (int i = 0; i < schedulers; ++i) losses.push_back(faults.Draw(kTheScheduler));
    for (int i = 0; i < most_losses; ++i) losses.push_back(faults.Draw());
    recoveries += ExpectSameAfter(options, undisturbed, losses);
    if (testing::Test::HasFailure()) return;
  }
  // While there is no scheduler several losses become one recovery.
  EXPECT_GT(recoveries, static_cast<int>(end - begin) / (schedulers > 0 ? 5 : 2))
      << "the faults hit nothing";
}

void ExpectLossAtAnyEnvelope(bool pairs, int64_t stride) {
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    ExpectLossAtAnyEnvelope(options, pairs, stride);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RecoveryTest, ALossAtAnyEnvelopeChangesNothing) {
  ExpectLossAtAnyEnvelope(false, kQuickStride);
}

TEST(RecoveryTest, TwoLossesAtAnyEnvelopesChangeNothing) {
  ExpectLossAtAnyEnvelope(true, kQuickStride);
}

TEST(RecoveryTest, SlowLossesAtEveryEnvelopeChangeNothing) {
  ExpectLossAtAnyEnvelope(false, 1);
  ExpectLossAtAnyEnvelope(true, 1);
}

// The scheduler may not give up whom it has not been able to ask yet.
TEST(RecoveryTest, ADiskThatIsSlowerThanHeartbeatsMakesNobodyLate) {
  for (SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    options.disk.delay = 2 * Seconds(options.job.communication().heartbeat_deadline_seconds());
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const Loss loss{.node = {Role::kWorker, 1},
                    .when = undisturbed.begun + (undisturbed.finished - undisturbed.begun) / 2};
    EXPECT_EQ(ExpectSameAfter(options, undisturbed, {loss}), 1);
    if (testing::Test::HasFailure()) return;
  }
}

// It does not fail, which the program would hear of; the program itself hangs.
TEST(RecoveryTest, ADiskThatDoesNotAnswerEndsTheJob) {
  for (SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const Time middle = undisturbed.begun + (undisturbed.finished - undisturbed.begun) / 2;
    options.disk.hangs_from = middle;
    SimulatedCluster cluster(options);
    cluster.KillAt(middle, {Role::kWorker, 1});
    EXPECT_TRUE(cluster.Run(middle + Seconds(10))) << "it hangs";
    for (size_t i = 0; i < cluster.nodes(); ++i) {
      const NodeRecord& node = cluster.node(i);
      if (node.killed) continue;
      ASSERT_TRUE(node.end) << node.id.ToString();
      EXPECT_EQ(node.end->exit_code(), static_cast<int>(ExitCode::kFailure));
      EXPECT_THAT(node.end->reason(),
                  testing::StartsWith("can't write scheduler.journal: the disk of the scheduler's "
                                      "--out has not answered for 7.5s"))
          << node.id.ToString();
    }
  }
}

// Nobody waits for the end to be written where the training is done, for nothing goes on from it.
TEST(RecoveryTest, ADiskThatDoesNotAnswerLeavesTheResultOfATrainingThatIsDone) {
  for (SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    options.disk.hangs_from =
        undisturbed.begun + (undisturbed.finished - undisturbed.begun) * 3 / 4;
    SimulatedCluster cluster(options);
    EXPECT_TRUE(cluster.Run(undisturbed.finished + Seconds(10))) << "it hangs";
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    EXPECT_EQ(ParametersOf(cluster, 0), undisturbed.parameters);
    EXPECT_THAT(cluster.scheduler().notices,
                testing::Contains(testing::StartsWith("can't write scheduler.journal: ")));
  }
}

// Trains on a network with faults, among nodes whose supervisors start them again, to the same
// bits. `cut` may not have heard of the end. Returns how many envelopes were dropped.
int64_t ExpectSameDespite(const SimulatedClusterOptions& options, const Undisturbed& undisturbed,
                          const std::optional<NodeId>& cut,
                          const std::function<void(WatchedJob&)>& prepare) {
  WatchedJob job(options);
  prepare(job);
  SimulatedCluster& cluster = job.cluster();
  Supervise(cluster);
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    EXPECT_TRUE(node.end) << node.id.ToString();
    if (!node.end) return 0;
    const bool unaware = cut == node.id && node.end->exit_code() == 3;
    EXPECT_TRUE(unaware || node.end->exit_code() == 0)
        << node.id.ToString() << ": " << node.end->reason();
  }
  if (testing::Test::HasFailure()) return 0;
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(ParametersOf(cluster, rank), undisturbed.parameters) << "worker " << rank;
  }
  return cluster.runtime().statistics().dropped;
}

// Every third one's servers update.
SimulatedClusterOptions AnyTraining(uint64_t seed) {
  const SimulatedClusterOptions options = RecoveringTraining(seed);
  return seed % 3 == 1 ? UpdatingAtServers(options, Communication::BYTES) : options;
}

void ExpectLostFramesDoNotEndTheJob(uint64_t begin, uint64_t end) {
  int64_t dropped = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = AnyTraining(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    options.network.seed = seed;
    options.network.faults = {
        .drop = 0.001, .duplicate = 0.1, .delay = 0.3, .max_delay = std::chrono::milliseconds(2)};
    bool faulty = true;
    options.network.fault_filter = [&](const Envelope& envelope) {
      return faulty && IsData(envelope);
    };
    dropped += ExpectSameDespite(options, undisturbed, std::nullopt, [&](WatchedJob& job) {
      // Two or three times as long as it takes to notice that a frame is lost.
      job.cluster().runtime().At(Seconds(20), [&] { faulty = false; });
      job.DisturbedUntil(Seconds(20));
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(dropped, 0) << "the faults hit nothing";
}

TEST(RecoveryTest, LostFramesDoNotEndTheJob) { ExpectLostFramesDoNotEndTheJob(0, kQuickSeeds); }

TEST(RecoveryTest, SlowLostFramesDoNotEndTheJob) {
  ExpectLostFramesDoNotEndTheJob(kQuickSeeds, SlowSeeds(kSeeds));
}

// When some workers have come to the end, the others have only so long; they may wait for a frame.
TEST(RecoveryTest, FramesOfTheLastIterationThatAreLostDoNotEndTheJob) {
  for (SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t last = options.work.iterations - 1;
    options.network.faults.drop = 1;
    int lost = 0;
    options.network.fault_filter = [&](const Envelope& envelope) {
      const bool loses = IsData(envelope) && envelope.to.node == NodeId{Role::kWorker, 1} &&
                         envelope.iteration >= last && lost == 0;
      lost += loses ? 1 : 0;
      return loses;
    };
    ExpectSameDespite(options, undisturbed, std::nullopt, [](WatchedJob&) {});
    EXPECT_EQ(lost, 1);
    if (testing::Test::HasFailure()) return;
  }
}

// A worker's declaration is lost with a connection, though it lives.
TEST(RecoveryTest, ADeclarationThatIsLostDoesNotEndTheJob) {
  SimulatedClusterOptions options = TinyTrainings().front();
  const Undisturbed undisturbed = TrainUndisturbed(options);
  options.network.faults.drop = 1;
  int lost = 0;
  options.network.fault_filter = [&](const Envelope& envelope) {
    return envelope.kind == MessageKind::kDeclareModel && lost++ == 0;
  };
  ExpectSameDespite(options, undisturbed, std::nullopt, [](WatchedJob&) {});
  EXPECT_GT(lost, 1);
}

void ExpectHealedCutsChangeNothing(uint64_t begin, uint64_t end) {
  int64_t dropped = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = AnyTraining(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Loss cut = Faults(seed, options, undisturbed).Draw();
    SCOPED_TRACE("cut off: " + ToString(cut));
    if (options.job.cluster().workers() == 1) continue;
    bool is_cut = false;
    const bool one_way = seed % 3 == 0;
    options.network.faults.drop = 1;
    options.network.fault_filter = [&](const Envelope& envelope) {
      return is_cut &&
             (envelope.from.node == cut.node || (!one_way && envelope.to.node == cut.node));
    };
    dropped += ExpectSameDespite(options, undisturbed, cut.node, [&](WatchedJob& job) {
      const Time healed = cut.when + 3 * cut.restart_after;
      job.cluster().runtime().At(cut.when, [&] { is_cut = true; });
      job.cluster().runtime().At(healed, [&] { is_cut = false; });
      job.DisturbedUntil(healed);
    });
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(dropped, 0) << "the cuts hit nothing";
}

TEST(RecoveryTest, ACutThatHealsChangesNothing) { ExpectHealedCutsChangeNothing(0, kQuickSeeds); }

TEST(RecoveryTest, SlowACutThatHealsChangesNothing) {
  ExpectHealedCutsChangeNothing(kQuickSeeds, SlowSeeds(kSeeds));
}

// The scheduler does not hear the others, who are on other machines, nor they it, for as long as it
// waits for them. Nobody is lost, also where somebody dies meanwhile or the job recovers already.
void ExpectTheSchedulersCutsChangeNothing(uint64_t begin, uint64_t end) {
  int64_t dropped = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = AnyTraining(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    std::optional<Loss> loss;
    if (seed % 2 == 0) loss = faults.Draw();
    const Loss cut = faults.Draw(kTheScheduler);
    SCOPED_TRACE("cut off: " + ToString(cut) + (loss ? "; lost: " + ToString(*loss) : ""));
    // TCP loses nothing in a cut that is too short to be noticed.
    const Time healed = cut.when + Seconds(1) + 4 * cut.restart_after;
    bool is_cut = false;
    options.network.faults.drop = 1;
    options.network.fault_filter = [&](const Envelope& envelope) {
      return is_cut && (envelope.from.node == kTheScheduler || envelope.to.node == kTheScheduler);
    };
    WatchedJob job(options);
    job.cluster().runtime().At(cut.when, [&] { is_cut = true; });
    job.cluster().runtime().At(healed, [&] { is_cut = false; });
    job.DisturbedUntil(healed);
    if (loss) Lose(*loss, job);
    ASSERT_TRUE(job.cluster().Run(kHung)) << "it hangs";
    if (loss && LostAll(job.cluster(), {*loss})) continue;
    const NodeRecord& scheduler = job.cluster().node(kTheScheduler);
    ASSERT_EQ(scheduler.end->exit_code(), 0) << scheduler.end->reason();
    // The others may not hear of an end during the cut.
    if (scheduler.ended >= cut.when && scheduler.ended < healed) continue;
    ExpectAllEnded(job.cluster(), ExitCode::kSuccess);
    if (testing::Test::HasFailure()) return;
    for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
      EXPECT_EQ(ParametersOf(job.cluster(), rank), undisturbed.parameters) << "worker " << rank;
    }
    dropped += job.cluster().runtime().statistics().dropped;
  }
  EXPECT_GT(dropped, 0) << "the cuts hit nothing";
}

TEST(RecoveryTest, TheSchedulersCutsChangeNothing) {
  ExpectTheSchedulersCutsChangeNothing(0, kQuickSeeds);
}

TEST(RecoveryTest, SlowSchedulersCutsChangeNothing) {
  ExpectTheSchedulersCutsChangeNothing(kQuickSeeds, SlowSeeds(kSeeds));
}

// `scheduler`: it is one of the two that are lost.
void ExpectPlanChanges(uint64_t begin, uint64_t end, bool scheduler) {
  int changed = 0;
  size_t recoveries = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = RecoveringTraining(seed);
    if (options.job.cluster().workers() == 1) continue;
    // Schemes differ in the order of their sums: what it comes to without a loss is another run's.
    const wire::PlanAndModel plan = RandomPlan(options, seed);
    const Parameters serial = TrainSerially(options.work, options.job.cluster().workers());
    const double bound = RoundingBound(options.work, options.job.cluster().workers());
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    const Loss first = scheduler ? faults.Draw(kTheScheduler) : faults.Draw();
    const Loss second = faults.Draw();
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    AskAt(first.when - std::min<Duration>(first.when, Seconds(0.002)), plan, cluster);
    for (const Loss& loss : {first, second}) Lose(loss, job);
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    if (LostAll(cluster, {first, second})) continue;
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    if (testing::Test::HasFailure()) return;
    for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
      EXPECT_LT(Difference(ParametersOf(cluster, rank), serial), bound) << "worker " << rank;
      EXPECT_EQ(ParametersOf(cluster, rank), ParametersOf(cluster, 0)) << "worker " << rank;
    }
    if (testing::Test::HasFailure()) return;
    changed += GoesBy(plan, cluster) ? 1 : 0;
    recoveries += cluster.scheduler().recoveries.size();
  }
  EXPECT_GT(changed, 0) << "no plan has changed";
  EXPECT_GT(recoveries, 0u) << "the faults hit nothing";
}

TEST(RecoveryTest, LossesWhileThePlanChangesChangeNothing) {
  ExpectPlanChanges(0, kQuickSeeds, false);
}

TEST(RecoveryTest, TheSchedulersLossWhileThePlanChangesChangesNothing) {
  ExpectPlanChanges(0, kQuickSeeds, true);
}

TEST(RecoveryTest, SlowLossesWhileThePlanChangesChangeNothing) {
  ExpectPlanChanges(kQuickSeeds, SlowSeeds(kSeeds), false);
  ExpectPlanChanges(kQuickSeeds, SlowSeeds(kSeeds), true);
}

TEST(RecoveryTest, OneLossChangesNothing) { ExpectRecoveries(0, kQuickSeeds, 1); }

TEST(RecoveryTest, LossesDuringRecoveryChangeNothing) { ExpectRecoveries(0, kQuickSeeds, 4); }

TEST(RecoveryTest, LossesOfAllNodesChangeNothing) { ExpectRecoveries(0, kQuickSeeds / 2, 2, 2); }

TEST(RecoveryTest, SlowLossesChangeNothing) {
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 1);
  ExpectRecoveries(kQuickSeeds, SlowSeeds(kSeeds), 4);
}

TEST(RecoveryTest, SlowLossesOfAllNodesChangeNothing) {
  ExpectRecoveries(kQuickSeeds / 2, SlowSeeds(kSeeds), 2, 2);
}

// The process that takes the last one's place is how the scheduler learns that nobody is left.
TEST(RecoveryTest, WhoComesToAJobThatNobodyIsLeftOfHearsHowItEnded) {
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const Time half = undisturbed.begun + (undisturbed.finished - undisturbed.begun) / 2;
    WatchedJob job(options);
    for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
      job.KillAt(half, {Role::kWorker, rank});
      job.RestartAt(half + std::chrono::milliseconds(10 + 10 * rank), {Role::kWorker, rank}, true);
    }
    EXPECT_TRUE(job.cluster().Run(kHung)) << "it hangs";
    for (size_t i = 0; i < job.cluster().nodes(); ++i) {
      const NodeRecord& node = job.cluster().node(i);
      if (node.killed) continue;
      ASSERT_TRUE(node.end) << node.id.ToString();
      EXPECT_EQ(node.end->exit_code(), static_cast<int>(ExitCode::kPeerLost));
      EXPECT_THAT(node.end->reason(), testing::HasSubstr("lost every node that had the parameters"))
          << node.id.ToString();
    }
    if (testing::Test::HasFailure()) return;
  }
}

// The frames of one worker's second iteration never arrive, though its heartbeat does. It is waited
// for once more, then given up; so are those that come in its place, until the job ends.
TEST(RecoveryTest, AJobThatNeverComesOverAnIterationEnds) {
  for (SimulatedClusterOptions options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    options.job.mutable_recovery()->set_give_up_after(2);
    options.job.mutable_communication()->set_stall_deadline_seconds(5);
    options.network.faults.drop = 1;
    options.network.fault_filter = [](const Envelope& envelope) {
      return envelope.from.node == NodeId{Role::kWorker, 1} &&
             envelope.to.node != envelope.from.node && envelope.to.lane >= kFirstDataLane &&
             envelope.iteration == 1;
    };
    SimulatedCluster cluster(options);
    Supervise(cluster);
    ASSERT_TRUE(cluster.Run(kHung));
    const auto& end = cluster.node(kTheScheduler).end;
    ASSERT_TRUE(end);
    EXPECT_EQ(end->exit_code(), static_cast<int>(ExitCode::kPeerLost));
    EXPECT_NE(end->reason().find(" was lost 3 times in a row"), std::string::npos) << end->reason();
  }
}

// Nor do those that are for it. The others compute one more iteration before they need what it has
// to send, which is no sign that the job has come on.
TEST(RecoveryTest, AJobInWhichAWorkerHearsNothingEnds) {
  for (SimulatedClusterOptions options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    options.job.mutable_recovery()->set_give_up_after(2);
    options.job.mutable_communication()->set_stall_deadline_seconds(5);
    options.work.iterations = 6;
    for (const int64_t from : {0, 1, 2}) {
      options.network.faults.drop = 1;
      options.network.fault_filter = [from](const Envelope& envelope) {
        return envelope.to.node == NodeId{Role::kWorker, 1} &&
               envelope.to.node != envelope.from.node && envelope.to.lane >= kFirstDataLane &&
               envelope.iteration >= from;
      };
      SimulatedCluster cluster(options);
      Supervise(cluster);
      EXPECT_TRUE(cluster.Run(kHung)) << "from iteration " << from;
    }
  }
}

}  // namespace
}  // namespace poseidon
