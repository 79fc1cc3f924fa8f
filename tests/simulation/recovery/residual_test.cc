// Nodes of a job die whose codec has error feedback: what a node has not sent goes back with it,
// what a lost node had not sent is lost, and all workers have the same parameters all the same.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "proto/plan_members.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

constexpr uint64_t kQuickSeeds = 6;
constexpr uint64_t kSeeds = 500;

SimulatedClusterOptions WithFeedback(SimulatedClusterOptions options, uint64_t seed) {
  Communication& communication = *options.job.mutable_communication();
  communication.set_policy(seed % 4 == 3 ? Communication::BYTES : Communication::ALL_PS);
  communication.set_codec(seed % 2 == 0 ? ONE_BIT : TOP_K);
  communication.set_top_k_share(0.1);
  return options;
}

// All workers of the last plan have the same parameters, and these are numbers.
void ExpectEqualWorkers(const SimulatedCluster& cluster) {
  const Plan plan = LastPlan(cluster);
  const Parameters first = ParametersOf(cluster, RankOfWorker(plan, 0));
  for (const std::vector<float>& layer : first) {
    for (const float value : layer) ASSERT_TRUE(std::isfinite(value));
  }
  for (int place = 1; place < plan.workers(); ++place) {
    EXPECT_EQ(ParametersOf(cluster, RankOfWorker(plan, place)), first) << "place " << place;
  }
}

// Of a job whose lost were replaced.
void ExpectWentWell(const SimulatedCluster& cluster, const std::vector<Loss>& losses) {
  if (LostAll(cluster, losses)) return;
  ASSERT_TRUE(cluster.node(kTheScheduler).end);
  ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0)
      << cluster.node(kTheScheduler).end->reason();
  ExpectEqualWorkers(cluster);
  for (const wire::Recovered& recovery : cluster.scheduler().recoveries) {
    EXPECT_LE(recovery.reached() - recovery.iteration(), 2);
  }
}

// Loses this data frame of the job, by its number, or counts them.
class OneLostFrame {
 public:
  OneLostFrame(SimulatedClusterOptions options, int64_t lost)
      : lost_(lost), cluster_(Losing(std::move(options))) {}

  const SimulatedCluster& cluster() const { return cluster_; }
  bool Run() { return cluster_.Run(kHung); }
  int64_t frames() const { return frames_; }

 private:
  SimulatedClusterOptions Losing(SimulatedClusterOptions options) {
    options.network.faults.drop = 1;
    options.network.fault_filter = [this](const Envelope& envelope) {
      return IsData(envelope) && frames_++ == lost_;
    };
    return options;
  }

  int64_t lost_;
  int64_t frames_ = 0;
  SimulatedCluster cluster_;
};

// Where a frame is lost and no node is, all go back, each with what it has not sent: workers their
// part of the gradient, servers of the sum.
void ExpectOneLostFrameChangesNothing(const SimulatedClusterOptions& options, int64_t first,
                                      int64_t stride, int& redone) {
  const Undisturbed undisturbed = TrainUndisturbed(options);
  OneLostFrame counting(options, -1);
  ASSERT_TRUE(counting.Run());
  for (int64_t lost = first; lost < counting.frames(); lost += stride) {
    SCOPED_TRACE("frame " + std::to_string(lost));
    OneLostFrame job(options, lost);
    ASSERT_TRUE(job.Run()) << "it hangs";
    ExpectAllEnded(job.cluster(), ExitCode::kSuccess);
    if (testing::Test::HasFailure()) return;
    for (const wire::Recovered& recovery : job.cluster().scheduler().recoveries) {
      EXPECT_EQ(recovery.lost_size(), 0);
      redone += static_cast<int>(recovery.reached() - recovery.iteration());
    }
    for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
      EXPECT_EQ(ParametersOf(job.cluster(), rank), undisturbed.parameters) << "worker " << rank;
    }
    if (testing::Test::HasFailure()) return;
  }
}

SimulatedClusterOptions TinyWithFeedback(uint64_t seed) {
  SimulatedClusterOptions options = TinyTrainings().front();
  options.work.iterations = 5;
  options.job.mutable_communication()->set_kv_pair_bytes(16);
  return WithFeedback(options, seed);
}

TEST(ResidualRecoveryTest, AnyLostFrameChangesNothing) {
  int redone = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE("codec of seed " + std::to_string(seed));
    ExpectOneLostFrameChangesNothing(TinyWithFeedback(seed), 0, 1, redone);
    if (HasFailure()) return;
  }
  EXPECT_GT(redone, 0) << "nobody had sent what was to be taken back";
}

void ExpectLostFramesChangeNothing(uint64_t begin, uint64_t end) {
  int redone = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = WithFeedback(RecoveringTraining(seed), seed);
    OneLostFrame counting(options, -1);
    ASSERT_TRUE(counting.Run());
    // Two a job, of which some have a thousand times as many frames as others.
    const int64_t stride = counting.frames() / 2 + 1;
    ExpectOneLostFrameChangesNothing(options, static_cast<int64_t>(7919 * seed) % stride, stride,
                                     redone);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(redone, 0);
}

TEST(ResidualRecoveryTest, LostFramesOfRandomJobsChangeNothing) {
  ExpectLostFramesChangeNothing(0, kQuickSeeds / 2);
}

TEST(ResidualRecoveryTest, SlowLostFramesOfRandomJobsChangeNothing) {
  ExpectLostFramesChangeNothing(kQuickSeeds / 2, SlowSeeds(kSeeds));
}

// Nodes die at random moments.
void ExpectEqualAfterLosses(uint64_t begin, uint64_t end, int losses, int schedulers) {
  int recoveries = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = WithFeedback(RecoveringTraining(seed), seed);
    Faults faults(seed, options, TrainUndisturbed(options));
    std::vector<Loss> lost;
    for (int i = 0; i < schedulers; ++i) lost.push_back(faults.Draw(kTheScheduler));
    for (int i = 0; i < losses; ++i) lost.push_back(faults.Draw());
    SimulatedCluster cluster(options);
    for (const Loss& loss : lost) {
      cluster.KillAt(loss.when, loss.node);
      cluster.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
    }
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    ExpectWentWell(cluster, lost);
    recoveries += static_cast<int>(cluster.scheduler().recoveries.size());
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(recoveries, static_cast<int>(end - begin) / 3) << "the faults hit nothing";
}

TEST(ResidualRecoveryTest, WorkersAreEqualAfterALoss) {
  ExpectEqualAfterLosses(0, kQuickSeeds, 1, 0);
}

TEST(ResidualRecoveryTest, WorkersAreEqualAfterLossesDuringRecovery) {
  ExpectEqualAfterLosses(0, kQuickSeeds, 3, 1);
}

TEST(ResidualRecoveryTest, SlowWorkersAreEqualAfterLosses) {
  ExpectEqualAfterLosses(kQuickSeeds, SlowSeeds(kSeeds), 1, 0);
  ExpectEqualAfterLosses(kQuickSeeds, SlowSeeds(kSeeds), 3, 1);
}

// Kills every node at every `stride`th envelope.
void ExpectEqualAfterALossAtAnyEnvelope(int64_t stride) {
  int64_t offset = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const SimulatedClusterOptions options = TinyWithFeedback(seed);
    LossesAtEnvelopes undisturbed(options, {});
    ASSERT_TRUE(undisturbed.Run());
    for (const NodeSpec& victim : options.layout.nodes) {
      if (victim.id.role == Role::kScheduler) continue;
      for (int64_t at = 1 + ++offset % stride; at <= undisturbed.envelopes(); at += stride) {
        SCOPED_TRACE(victim.id.ToString() + " at envelope " + std::to_string(at));
        LossesAtEnvelopes job(options, {{victim.id, at}});
        ASSERT_TRUE(job.Run()) << "it hangs";
        ExpectWentWell(job.cluster(), {{.node = victim.id}});
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ResidualRecoveryTest, WorkersAreEqualAfterALossAtAnyEnvelope) {
  ExpectEqualAfterALossAtAnyEnvelope(7);
}

TEST(ResidualRecoveryTest, SlowWorkersAreEqualAfterALossAtEveryEnvelope) {
  ExpectEqualAfterALossAtAnyEnvelope(1);
}

// Under SHRINK, with workers that come and leave. Further seeds are drawn, up to as many again,
// where too little happens in these: each compiler draws others.
void ExpectEqualAfterChanges(uint64_t begin, uint64_t end) {
  int changes = 0;
  const int wanted = static_cast<int>(end - begin) / 3 + 1;
  for (uint64_t seed = begin; seed < end || (changes < wanted && seed < 2 * end); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = WithFeedback(Shrinking(RecoveringTraining(seed)), seed);
    const int workers = options.job.cluster().workers();
    options.job.mutable_elastic()->set_max_workers(workers + 1);
    options.job.mutable_elastic()->set_regroup_interval_seconds(0);
    Faults moments(seed, options, TrainUndisturbed(options));
    AddNode({Role::kWorker, workers}, moments.Draw().when, options);
    SimulatedCluster cluster(options);
    AskToLeaveAt(moments.Draw().when, {Role::kWorker, static_cast<int>(seed) % workers}, cluster);
    const Loss loss = moments.Draw();
    if (seed % 2 == 0) cluster.KillAt(loss.when, loss.node);
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    // Where a job can't do without the lost has nothing to do with the codec (ShrinkTest).
    if (cluster.node(kTheScheduler).end->exit_code() != 0) continue;
    ExpectEqualWorkers(cluster);
    for (const wire::Recovered& recovered : cluster.scheduler().recoveries) {
      changes += recovered.left_size() + recovered.joined_size() + recovered.lost_size();
    }
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GE(changes, wanted);
}

TEST(ResidualRecoveryTest, WorkersAreEqualAfterTheirNumberChanges) {
  ExpectEqualAfterChanges(0, kQuickSeeds);
}

TEST(ResidualRecoveryTest, SlowWorkersAreEqualAfterTheirNumberChanges) {
  ExpectEqualAfterChanges(kQuickSeeds, SlowSeeds(kSeeds));
}

constexpr float kTarget = 3;

// Each worker's loss is half the squared distance to its own point, whose mean is the target.
SimulatedClusterOptions Converging(uint64_t seed) {
  SimulatedClusterOptions options = TinyWithFeedback(seed);
  options.work.iterations = 120;
  options.work.arithmetic.gradient = [](int rank, int64_t, int, std::span<const float> values,
                                        const GradientBuffers& gradient) {
    const float own = kTarget + static_cast<float>(rank - 1);  // of three
    for (size_t i = 0; i < gradient.dense.size(); ++i) gradient.dense[i] = values[i] - own;
  };
  return options;
}

double LargestError(const Parameters& parameters) {
  double largest = 0;
  for (const std::vector<float>& layer : parameters) {
    for (const float value : layer) largest = std::max(largest, std::abs(double{value} - kTarget));
  }
  return largest;
}

// A loss costs what the lost one had not sent: training comes as near to its end as without.
TEST(ResidualRecoveryTest, TrainingConvergesAllTheSame) {
  for (uint64_t seed = 0; seed < 2; ++seed) {  // both codecs
    SCOPED_TRACE("codec of seed " + std::to_string(seed));
    const SimulatedClusterOptions options = Converging(seed);
    SimulatedClusterOptions begun = options;
    begun.work.iterations = 1;
    const double error_at_first = LargestError(TrainUndisturbed(begun).parameters);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const double error = LargestError(undisturbed.parameters);
    ASSERT_LT(error, error_at_first / 10);
    Faults faults(seed, options, undisturbed);
    for (const NodeSpec& victim : options.layout.nodes) {
      if (victim.id.role == Role::kScheduler) continue;
      SCOPED_TRACE(victim.id.ToString());
      const Duration length = undisturbed.finished - undisturbed.begun;
      const Time when = undisturbed.begun + length / 2;
      SimulatedCluster cluster(options);
      cluster.KillAt(when, victim.id);
      cluster.RestartAt(when + Seconds(0.1), victim.id, true);
      ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
      ASSERT_EQ(cluster.scheduler().recoveries.size(), 1U);
      ExpectWentWell(cluster, {{.node = victim.id}});
      EXPECT_LE(LargestError(ParametersOf(cluster, 0)), 2 * error + error_at_first / 100);
    }
  }
}

}  // namespace
}  // namespace poseidon
