// Workers come to a job under way, and leave it: to what one process computes that averages, in
// each iteration, the gradients of as many workers as there were then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "proto/plan_members.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kQuickSeeds = 9;
constexpr uint64_t kSeeds = 1000;

// Workers that come later than the others.
constexpr int kNewcomers = 2;

// Of a third of the seeds the learning rate changes with the workers.
Elastic::LearningRate RateOf(uint64_t seed) {
  return seed % 3 == 0 ? Elastic::LINEAR : Elastic::KEEP;
}

SimulatedClusterOptions Growing(SimulatedClusterOptions options,
                                Elastic::LearningRate rate = Elastic::KEEP) {
  options = Shrinking(std::move(options));
  Elastic& elastic = *options.job.mutable_elastic();
  elastic.set_max_workers(options.job.cluster().workers() + kNewcomers);
  elastic.set_regroup_interval_seconds(0);
  elastic.set_learning_rate(rate);
  return options;
}

void AddWorker(Time start, SimulatedClusterOptions& options) {
  int rank = 0;
  for (const NodeSpec& node : options.layout.nodes) {
    if (node.id.role == Role::kWorker) rank = std::max(rank, node.id.rank + 1);
  }
  AddNode({Role::kWorker, rank}, start, options);
}

// Where nobody was lost all stood at the iteration from which they went on.
void ExpectNothingRedone(const SimulatedCluster& cluster) {
  for (const wire::Recovered& recovered : cluster.scheduler().recoveries) {
    const bool changed = recovered.left_size() + recovered.joined_size() > 0;
    if (!changed || recovered.lost_size() > 0) continue;
    EXPECT_EQ(recovered.reached(), recovered.iteration());
  }
}

struct Changes {
  int joined = 0;
  int left = 0;
  int lost = 0;
};

Changes ChangesOf(const SimulatedCluster& cluster) {
  Changes changes;
  for (const wire::Recovered& recovered : cluster.scheduler().recoveries) {
    changes.joined += recovered.joined_size();
    changes.left += recovered.left_size();
    changes.lost += recovered.lost_size();
  }
  return changes;
}

// Of a job that has run to its end without a loss.
void ExpectAllWell(const SimulatedCluster& cluster, const SimulatedClusterOptions& options) {
  ASSERT_TRUE(cluster.node(kTheScheduler).end) << "it hangs";
  ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0)
      << cluster.node(kTheScheduler).end->reason();
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    ASSERT_TRUE(node.end) << node.id.ToString();
    // It came when the job had ended.
    const bool too_late = node.id.rank >= options.job.cluster().workers() && node.epoch == 0 &&
                          node.end->exit_code() == static_cast<int>(ExitCode::kDeadlineExceeded);
    if (too_late) continue;
    EXPECT_EQ(node.end->exit_code(), 0) << node.id.ToString() << ": " << node.end->reason();
  }
  ExpectNothingRedone(cluster);
  ExpectTrained(cluster, options);
}

class Wishes {
 public:
  Wishes(uint64_t seed, const Undisturbed& undisturbed)
      : random_(seed), undisturbed_(undisturbed) {}

  Time Draw() {
    const Duration length = undisturbed_.finished - undisturbed_.begun;
    return undisturbed_.begun + Duration(random_() % static_cast<uint64_t>(length.count() + 1));
  }
  int DrawBelow(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }

 private:
  std::mt19937_64 random_;
  Undisturbed undisturbed_;
};

// Two workers come, and up to two leave, at any time. How many did before the training ended.
Changes ExpectElastic(uint64_t seed) {
  SimulatedClusterOptions options = Growing(RecoveringTraining(seed), RateOf(seed));
  Wishes wishes(seed, TrainUndisturbed(options));
  const int workers = options.job.cluster().workers();
  for (int i = 0; i < kNewcomers; ++i) AddWorker(wishes.Draw(), options);
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  for (int i = 0; i < 2; ++i) {
    AskToLeaveAt(wishes.Draw(), {Role::kWorker, wishes.DrawBelow(workers + kNewcomers)}, cluster);
  }
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  ExpectAllWell(cluster, options);
  return ChangesOf(cluster);
}

void ExpectElastic(uint64_t begin, uint64_t end) {
  Changes all;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Changes changes = ExpectElastic(seed);
    all.joined += changes.joined;
    all.left += changes.left;
    if (testing::Test::HasFailure()) return;
  }
  const int seeds = static_cast<int>(end - begin);
  EXPECT_GT(all.joined, seeds / 3);
  EXPECT_GT(all.left, seeds / 3);
}

TEST(ElasticTest, WorkersComeAndLeaveAtAnyTime) { ExpectElastic(0, kQuickSeeds); }
TEST(ElasticTest, SlowWorkersComeAndLeaveAtAnyTime) {
  ExpectElastic(kQuickSeeds, SlowSeeds(kSeeds));
}

// Among losses, of the scheduler, too.
void ExpectElasticWithLosses(uint64_t begin, uint64_t end) {
  Changes all;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = Growing(RecoveringTraining(seed), RateOf(seed));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Wishes wishes(seed, undisturbed);
    Faults faults(seed, options, undisturbed);
    const int workers = options.job.cluster().workers();
    const Loss loss = faults.Draw();
    const Loss scheduler = faults.Draw(kTheScheduler);
    for (int i = 0; i < kNewcomers; ++i) AddWorker(wishes.Draw(), options);
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    AskToLeaveAt(wishes.Draw(), {Role::kWorker, wishes.DrawBelow(workers)}, cluster);
    job.KillAt(loss.when, loss.node);
    if (seed % 2 == 0) {
      job.KillAt(scheduler.when, kTheScheduler);
      job.RestartAt(scheduler.when + scheduler.restart_after, kTheScheduler, true);
    }
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    const wire::End& over = *cluster.node(kTheScheduler).end;
    if (over.exit_code() != 0) {
      // It was lost before the others had anything to go on from, or the only one of its kind.
      EXPECT_THAT(over.reason(),
                  testing::AnyOf(HasSubstr("lost every node that had the parameters"),
                                 HasSubstr("nobody took the place")));
      continue;
    }
    ExpectTrained(cluster, options);
    const Changes changes = ChangesOf(cluster);
    all.joined += changes.joined;
    all.lost += changes.lost;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(all.joined, 0);
  EXPECT_GT(all.lost, 0);
}

TEST(ElasticTest, AmongLosses) { ExpectElasticWithLosses(0, kQuickSeeds); }
TEST(ElasticTest, SlowAmongLosses) { ExpectElasticWithLosses(kQuickSeeds, SlowSeeds(kSeeds)); }

// A job of two workers, in which one more comes and one leaves; `then` happens to it.
SimulatedClusterOptions TwoAndAnother(const SimulatedClusterOptions& tiny) {
  SimulatedClusterOptions options = Growing(tiny);
  options.work.iterations = 20;
  AddWorker(Seconds(0.02), options);
  return options;
}

TEST(ElasticTest, OneWhoComesGetsARankThatIsFree) {
  int joined = 0;
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(tiny.job.communication().policy()));
    SimulatedClusterOptions options = TwoAndAnother(tiny);
    options.job.mutable_elastic()->clear_max_workers();
    options.work.iterations = 40;
    options.layout.nodes.back().id.rank = -1;  // any
    options.layout.nodes.back().start = Seconds(0.1);
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    AskToLeaveAt(Seconds(0.03), {Role::kWorker, 1}, cluster);
    ASSERT_TRUE(cluster.Run(kHung));
    ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0);
    const Plan plan = LastPlan(cluster);
    if (ChangesOf(cluster).joined == 0) continue;  // it came too late
    ++joined;
    EXPECT_EQ(plan.workers(), 3);
    EXPECT_EQ(RankOfWorker(plan, 1), 1);
    EXPECT_EQ(plan.tenures_size(), 3);
  }
  EXPECT_GE(joined, 1) << "all came too late";
}

// The second comes right after the first was taken in.
TEST(ElasticTest, ThoseWhoComeWaitForTheRegroupInterval) {
  constexpr Duration kInterval = Seconds(0.3);
  SimulatedClusterOptions options = TwoAndAnother(TinyTrainings().front());
  options.job.mutable_elastic()->set_regroup_interval_seconds(ToSeconds(kInterval));
  options.work.iterations = 300;
  AddWorker(kInterval + Seconds(0.1), options);
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  std::vector<Time> joined;
  constexpr Duration kStep = std::chrono::milliseconds(1);
  for (Time now{}; now < Seconds(3); now += kStep) {
    cluster.runtime().At(now, [&joined, &cluster, now] {
      const auto count = static_cast<size_t>(ChangesOf(cluster).joined);
      if (count > joined.size()) joined.resize(count, now);
    });
  }
  ASSERT_TRUE(cluster.Run(kHung));
  ExpectAllWell(cluster, options);
  ASSERT_EQ(joined.size(), 2u);
  const Time begun = cluster.trainer(0).iterations.front().begin;
  EXPECT_GE(joined[0] - begun, kInterval - kStep);
  EXPECT_GE(joined[1] - joined[0], kInterval - kStep);
}

TEST(ElasticTest, BeyondMaxWorkersOneWaitsUntilAnotherLeaves) {
  SimulatedClusterOptions options = TwoAndAnother(TinyTrainings().front());
  const int most = options.job.cluster().workers() + 1;
  options.job.mutable_elastic()->set_max_workers(most);
  options.work.iterations = 1000;
  AddNode({Role::kWorker, -1}, Seconds(0.02), options);  // one too many
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  const Time leaves = Seconds(0.5);
  cluster.runtime().At(leaves, [&] { EXPECT_EQ(ChangesOf(cluster).joined, 1); });
  AskToLeaveAt(leaves, {Role::kWorker, 1}, cluster);
  ASSERT_TRUE(cluster.Run(kHung));
  // It has the rank, too, by which this would find the parameters of who has left (ExpectTrained).
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  ExpectNothingRedone(cluster);
  EXPECT_EQ(ChangesOf(cluster).joined, 2);
  EXPECT_EQ(ChangesOf(cluster).left, 1);
  const Plan plan = LastPlan(cluster);
  for (const Tenure& tenure : plan.tenures()) EXPECT_LE(tenure.workers(), most);
}

TEST(ElasticTest, MinWorkersStay) {
  SimulatedClusterOptions options = TwoAndAnother(TinyTrainings().front());
  options.job.mutable_elastic()->set_min_workers(3);
  options.layout.nodes.pop_back();
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  AskToLeaveAt(Seconds(0.03), {Role::kWorker, 1}, cluster);
  ASSERT_TRUE(cluster.Run(kHung));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  EXPECT_EQ(LastPlan(cluster).tenures_size(), 0);
}

// It asks after the other's death, of which the scheduler does not know yet, and again later.
TEST(ElasticTest, MinWorkersStayWhenAnotherIsLost) {
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(tiny.job.communication().policy()));
    SimulatedClusterOptions options = TwoAndAnother(tiny);
    options.job.mutable_elastic()->set_min_workers(2);
    options.layout.nodes.pop_back();
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    job.KillAt(Seconds(0.03), {Role::kWorker, 0});
    AskToLeaveAt(Seconds(0.04), {Role::kWorker, 1}, cluster);
    ASSERT_TRUE(cluster.Run(kHung));
    ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0);
    EXPECT_EQ(ChangesOf(cluster).lost, 1);
    EXPECT_EQ(ChangesOf(cluster).left, 0);
    ExpectTrained(cluster, options);
  }
}

TEST(ElasticTest, AStopWhileTheWorkersChangeIsForWhenTrainingGoesOn) {
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(tiny.job.communication().policy()));
    SimulatedClusterOptions options = TwoAndAnother(tiny);
    options.work.model.set_iterations(options.work.iterations);
    SimulatedCluster* job = nullptr;
    bool asked = false;
    options.network.processing = [&](const Envelope& envelope) {
      if (envelope.kind == MessageKind::kHold && !std::exchange(asked, true)) {
        AskToStopAt(job->runtime().now(), *job);
      }
      return Duration::zero();
    };
    SimulatedCluster cluster(options);
    job = &cluster;
    ASSERT_TRUE(cluster.Run(kHung));
    ASSERT_TRUE(asked);
    const wire::End& end = *cluster.node(kTheScheduler).end;
    EXPECT_EQ(end.exit_code(), 0) << end.reason();
    EXPECT_EQ(end.job_exit_code(), static_cast<int>(ExitCode::kInterrupted));
    EXPECT_EQ(ChangesOf(cluster).joined, 1);
    options.work.iterations = std::ssize(cluster.trainer(0).iterations);
    EXPECT_LT(options.work.iterations, options.work.model.iterations());
    ExpectTrained(cluster, options);
  }
}

// In a job that is not elastic nobody leaves or comes.
TEST(ElasticTest, OnlyWhereTheJobSaysSo) {
  SimulatedClusterOptions options = TwoAndAnother(TinyTrainings().front());
  options.job.clear_elastic();
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  AskToLeaveAt(Seconds(0.03), {Role::kWorker, 1}, cluster);
  ASSERT_TRUE(cluster.Run(kHung));
  EXPECT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0);
  EXPECT_EQ(cluster.node({Role::kWorker, 3}).end->exit_code(),
            static_cast<int>(ExitCode::kRefused));
  EXPECT_EQ(LastPlan(cluster).tenures_size(), 0);
}

// Whatever dies while they come and leave.
void ExpectElasticAtEnvelopes(int64_t stride) {
  int64_t offset = 0;
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(tiny.job.communication().policy()));
    const SimulatedClusterOptions options = TwoAndAnother(tiny);
    LossesAtEnvelopes undisturbed(options, {});
    ASSERT_TRUE(undisturbed.Run());
    ExpectAllWell(undisturbed.cluster(), options);
    ASSERT_EQ(ChangesOf(undisturbed.cluster()).joined, 1);
    for (const NodeSpec& victim : options.layout.nodes) {
      const bool scheduler = victim.id.role == Role::kScheduler;
      for (int64_t at = 1 + ++offset % stride; at <= undisturbed.envelopes(); at += stride) {
        SCOPED_TRACE(victim.id.ToString() + " at envelope " + std::to_string(at));
        LossesAtEnvelopes job(options,
                              {{.node = victim.id, .envelope = at, .restarts = scheduler}});
        ASSERT_TRUE(job.Run()) << "it hangs";
        const SimulatedCluster& cluster = job.cluster();
        ASSERT_TRUE(cluster.node(kTheScheduler).end);
        // Who does not come at all is missed by a job that has not begun.
        const bool begun = cluster.scheduler().progress_messages > 0;
        if (!begun && cluster.node(kTheScheduler).end->exit_code() != 0) continue;
        ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0)
            << cluster.node(kTheScheduler).end->reason();
        ExpectTrained(cluster, options);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(ElasticTest, ALossAtAnyEnvelope) { ExpectElasticAtEnvelopes(97); }
TEST(ElasticTest, SlowALossAtEveryEnvelope) { ExpectElasticAtEnvelopes(1); }

}  // namespace
}  // namespace poseidon
