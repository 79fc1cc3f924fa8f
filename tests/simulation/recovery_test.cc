// Nodes of a job die, and it ends as if none had.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

// Seeds below the first number are tried in the quick run, the rest in the slow one.
constexpr uint64_t kQuickSeeds = 200;
constexpr uint64_t kSeeds = 20000;

const NodeId kTheScheduler{Role::kScheduler, 0};

void MakeRecovering(Job& job) {
  Communication& communication = *job.mutable_communication();
  communication.set_update_at(Communication::WORKERS);
  communication.set_deterministic(true);
  communication.set_heartbeat_interval_seconds(0.25);
  communication.set_heartbeat_deadline_seconds(1);
  communication.set_stall_deadline_seconds(5);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  job.mutable_recovery()->set_give_up_after(100);
}

// A job that recovers, whose sums have the same bits in every run.
SimulatedClusterOptions RecoveringTraining(uint64_t seed) {
  SimulatedClusterOptions options = RandomTraining(seed);
  Communication& communication = *options.job.mutable_communication();
  if (communication.policy() == Communication::ALL_ADAM) {
    communication.set_policy(Communication::ALL_PS);
  }
  MakeRecovering(options.job);
  options.work.iterations += 3 + static_cast<int64_t>(seed % 12);
  return options;
}

struct Loss {
  NodeId node;
  Time when{};
  Duration restart_after{};
  bool supervised = false;
};

std::string ToString(const Loss& loss) {
  return loss.node.ToString() + " dies at " + std::to_string(ToSeconds(loss.when)) +
         " s, another " + std::to_string(ToSeconds(loss.restart_after)) + " s later" +
         (loss.supervised ? ", supervised; " : "; ");
}

struct Undisturbed {
  Parameters parameters;
  Time begun{};
  Time finished{};
};

Undisturbed TrainUndisturbed(const SimulatedClusterOptions& options) {
  SimulatedCluster cluster(options);
  EXPECT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  if (testing::Test::HasFailure()) return {};
  return {ParametersOf(cluster, 0), cluster.trainer(0).iterations.front().begin,
          cluster.trainer(0).finished};
}

// Virtual time after which a job of these tests hangs.
constexpr Time kHung = Seconds(1000);

// Whether every worker has died, and the job has ended for that.
bool LostAll(const SimulatedCluster& cluster, const std::vector<Loss>& losses) {
  std::set<NodeId> workers;
  for (const Loss& loss : losses) {
    if (loss.node.role == Role::kWorker) workers.insert(loss.node);
  }
  const std::optional<wire::End>& end = cluster.node({Role::kScheduler, 0}).end;
  if (!end || end->exit_code() != static_cast<int>(ExitCode::kPeerLost)) return false;
  EXPECT_THAT(end->reason(), HasSubstr("lost every node that had the parameters"));
  size_t all = 0;
  for (size_t i = 0; i < cluster.nodes(); ++i) all += cluster.node(i).id.role == Role::kWorker;
  EXPECT_EQ(workers.size(), all) << "a worker that had the parameters is left";
  return true;
}

// All have ended well, but that a process which was started after the job's end found nobody.
void ExpectEnded(const SimulatedCluster& cluster, const std::vector<NodeId>& lost) {
  const std::optional<wire::End>& job = cluster.node({Role::kScheduler, 0}).end;
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed) continue;
    ASSERT_TRUE(node.end) << node.id.ToString() << " has not ended";
    const bool died = std::ranges::any_of(
        lost, [&](const NodeId& other) { return other.role == node.id.role; });
    const bool too_late = died && job && job->exit_code() == 0 &&
                          node.end->exit_code() == static_cast<int>(ExitCode::kDeadlineExceeded);
    EXPECT_TRUE(too_late || node.end->exit_code() == 0)
        << node.id.ToString() << ": " << node.end->reason();
  }
}

// Who is lost, of losses of either kind.
template <typename AnyLoss>
std::vector<NodeId> NodesOf(const std::vector<AnyLoss>& losses) {
  std::vector<NodeId> nodes;
  for (const AnyLoss& loss : losses) nodes.push_back(loss.node);
  return nodes;
}

// Returns how many recoveries there were.
int ExpectSameAfter(const SimulatedClusterOptions& options, const Undisturbed& expected,
                    const std::vector<Loss>& losses) {
  std::string faults;
  for (const Loss& loss : losses) faults += ToString(loss);
  SCOPED_TRACE(faults);
  SimulatedCluster cluster(options);
  for (const Loss& loss : losses) {
    cluster.KillAt(loss.when, loss.node);
    cluster.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
  }
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  if (LostAll(cluster, losses)) return 1;
  ExpectEnded(cluster, NodesOf(losses));
  if (testing::Test::HasFailure()) return 0;
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(ParametersOf(cluster, rank), expected.parameters) << "worker " << rank;
  }
  for (const wire::Recovered& recovery : cluster.scheduler().recoveries) {
    EXPECT_LE(recovery.reached() - recovery.iteration(), 2);
    EXPECT_GE(recovery.reached(), recovery.iteration());
  }
  return static_cast<int>(cluster.scheduler().recoveries.size());
}

class Faults {
 public:
  Faults(uint64_t seed, const SimulatedClusterOptions& options, const Undisturbed& undisturbed)
      : random_(seed), options_(options), undisturbed_(undisturbed) {}

  Loss Draw() {
    NodeId node;
    do {
      node = options_.layout.nodes[random_() % options_.layout.nodes.size()].id;
    } while (node.role == Role::kScheduler);
    return Draw(node);
  }

  Loss Draw(const NodeId& node) {
    Loss loss;
    loss.node = node;
    // Also what comes after an earlier loss: its recovery, and the training that it has delayed.
    const Duration length = undisturbed_.finished - undisturbed_.begun + after_ * Seconds(2);
    loss.when =
        undisturbed_.begun + Duration(random_() % static_cast<uint64_t>(length.count() + 1));
    ++after_;
    loss.restart_after = Duration(random_() % static_cast<uint64_t>(Seconds(2).count()));
    loss.supervised = random_() % 2 == 0;
    return loss;
  }

 private:
  std::mt19937_64 random_;
  const SimulatedClusterOptions& options_;
  Undisturbed undisturbed_;
  int after_ = 0;  // losses drawn
};

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

// Every policy whose updates the workers make, as a job of a few envelopes.
std::vector<SimulatedClusterOptions> TinyTrainings() {
  std::vector<SimulatedClusterOptions> trainings;
  using C = Communication;
  for (const C::Policy policy :
       {C::ALL_PS, C::ALL_SFB, C::ALL_RING, C::ALL_HALVING_DOUBLING, C::ALL_TORUS}) {
    SimulatedClusterOptions options =
        SmallTraining(3, 2, {DenseLayer("dense", 5), InnerProductLayer("product", 3, 2, 2)}, 2,
                      std::chrono::milliseconds(1));
    options.job.mutable_communication()->set_policy(policy);
    MakeRecovering(options.job);
    trainings.push_back(std::move(options));
  }
  return trainings;
}

// Dies when the job's envelope of this number arrives anywhere, within nodes, too.
struct LossAtEnvelope {
  NodeId node;
  int64_t envelope = 0;
  Duration restart_after = Seconds(0.05);
  // Counted from the moment at which the first of the lost is started again.
  bool since_restart = false;
};

// The scheduler that ended has heard how each worker's iterations went, all of them.
void ExpectAllReported(const SimulatedCluster& cluster, const SimulatedClusterOptions& options) {
  for (int64_t iteration = 0; iteration < options.work.iterations; ++iteration) {
    const auto found = cluster.scheduler().reported.find(iteration);
    ASSERT_NE(found, cluster.scheduler().reported.end()) << "iteration " << iteration;
    EXPECT_EQ(found->second.size(), static_cast<size_t>(options.job.cluster().workers()))
        << "iteration " << iteration;
  }
}

// Runs a job in which nodes die at envelopes.
class LossesAtEnvelopes {
 public:
  LossesAtEnvelopes(SimulatedClusterOptions options, std::vector<LossAtEnvelope> losses)
      : losses_(std::move(losses)), cluster_(Counting(std::move(options))) {}

  const SimulatedCluster& cluster() const { return cluster_; }
  bool Run() { return cluster_.Run(kHung); }
  int64_t envelopes() const { return envelopes_; }
  int64_t envelopes_since_restart() const { return since_restart_; }

 private:
  SimulatedClusterOptions Counting(SimulatedClusterOptions options) {
    options.network.processing = [this](const Envelope&) {
      Count();
      return Duration::zero();
    };
    return options;
  }

  void Count() {
    const Time now = cluster_.runtime().now();
    ++envelopes_;
    if (restarted_ && now >= *restarted_) ++since_restart_;
    for (const LossAtEnvelope& loss : losses_) {
      if (loss.envelope != (loss.since_restart ? since_restart_ : envelopes_)) continue;
      if (!restarted_) restarted_ = now + loss.restart_after;
      cluster_.KillAt(now, loss.node);
      cluster_.RestartAt(now + loss.restart_after, loss.node, true);
    }
  }

  std::vector<LossAtEnvelope> losses_;
  int64_t envelopes_ = 0;
  int64_t since_restart_ = 0;
  std::optional<Time> restarted_;  // when the first of the lost is
  SimulatedCluster cluster_;
};

struct Envelopes {
  int64_t all = 0;
  int64_t since_restart = 0;
};

Envelopes TrainWithLosses(const SimulatedClusterOptions& options, const Parameters& expected,
                          const std::vector<LossAtEnvelope>& losses) {
  LossesAtEnvelopes job(options, losses);
  const SimulatedCluster& simulated = job.cluster();
  EXPECT_TRUE(job.Run()) << "it hangs";
  const Envelopes envelopes{job.envelopes(), job.envelopes_since_restart()};
  ExpectEnded(simulated, NodesOf(losses));
  if (testing::Test::HasFailure()) return envelopes;
  const bool only_the_scheduler =
      std::ranges::all_of(losses, [](const auto& loss) { return loss.node == kTheScheduler; });
  if (only_the_scheduler) {
    EXPECT_TRUE(simulated.scheduler().recoveries.empty()) << "training stopped";
    ExpectAllReported(simulated, options);
  }
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    if (!expected.empty()) {
      EXPECT_EQ(ParametersOf(simulated, rank), expected) << "worker " << rank;
    }
  }
  return envelopes;
}

// Kills every node at every `stride`th envelope; with `pairs` another one a few envelopes later.
void ExpectLossAtAnyEnvelope(int64_t stride, bool pairs) {
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    int64_t first = 0;
    for (const NodeSpec& victim : options.layout.nodes) {
      if (victim.id.role == Role::kScheduler) continue;
      // Another offset for each node, so that together they try all.
      for (int64_t at = 1 + ++first % stride; at <= envelopes; at += stride) {
        std::vector<LossAtEnvelope> losses{{victim.id, at}};
        if (pairs) {
          const size_t other = 1 + static_cast<size_t>(at) % (options.layout.nodes.size() - 1);
          losses.push_back({options.layout.nodes[other].id, at + 1 + at % 97});
        }
        SCOPED_TRACE(victim.id.ToString() + " at envelope " + std::to_string(at));
        TrainWithLosses(options, undisturbed.parameters, losses);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

// Kills the scheduler at every `stride`th envelope, and with it what `others` says.
using OtherLosses = std::function<std::vector<LossAtEnvelope>(
    const SimulatedClusterOptions& options, int64_t envelope)>;

void ExpectSchedulerLossAtAnyEnvelope(int64_t stride, const OtherLosses& others) {
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    for (int64_t at = 1; at <= envelopes; at += stride) {
      SCOPED_TRACE("scheduler at envelope " + std::to_string(at));
      // Half of them are away for longer than it takes the nodes to notice.
      LossAtEnvelope loss{kTheScheduler, at};
      if (at % 2 == 0) loss.restart_after = Seconds(3);
      std::vector<LossAtEnvelope> losses = others(options, at);
      losses.insert(losses.begin(), loss);
      TrainWithLosses(options, undisturbed.parameters, losses);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(RecoveryTest, TheSchedulersLossAtAnyEnvelopeChangesNothing) {
  ExpectSchedulerLossAtAnyEnvelope(1, [](auto&, int64_t) { return std::vector<LossAtEnvelope>(); });
}

NodeId OtherNode(const SimulatedClusterOptions& options, int64_t draw) {
  // The scheduler is the first.
  const size_t index = 1 + static_cast<size_t>(draw) % (options.layout.nodes.size() - 1);
  return options.layout.nodes[index].id;
}

TEST(RecoveryTest, TheSchedulersLossWithAnothersChangesNothing) {
  ExpectSchedulerLossAtAnyEnvelope(1, [](const auto& options, int64_t at) {
    const int64_t before = at % 3 == 0 ? -(1 + at % 31) : at % 13;
    return std::vector<LossAtEnvelope>{{OtherNode(options, at), std::max<int64_t>(1, at + before)}};
  });
}

// For every `stride`th envelope at which the scheduler dies: the next one dies at every
// `second_stride`th envelope that comes when it is there, and another node before or after it, if
// `with_another`.
void ExpectTwoSchedulerLosses(int64_t stride, int64_t second_stride, bool with_another) {
  int64_t offset = 0;
  for (const SimulatedClusterOptions& options : TinyTrainings()) {
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    for (int64_t at = 1 + ++offset % stride; at <= envelopes; at += stride) {
      const LossAtEnvelope first{kTheScheduler, at};
      const int64_t since =
          TrainWithLosses(options, undisturbed.parameters, {first}).since_restart;
      for (int64_t second = 1 + at % second_stride; second <= since; second += second_stride) {
        SCOPED_TRACE("scheduler at envelope " + std::to_string(at) + " and " +
                     std::to_string(second) + " envelopes later");
        std::vector<LossAtEnvelope> losses{first, {.node = kTheScheduler, .envelope = second}};
        losses.back().since_restart = true;
        if (with_another) {
          losses.push_back({OtherNode(options, at + second), second + second % 17});
          losses.back().since_restart = true;
        }
        TrainWithLosses(options, undisturbed.parameters, losses);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(RecoveryTest, TwoSchedulersLossesChangeNothing) { ExpectTwoSchedulerLosses(41, 7, false); }

TEST(RecoveryTest, TwoSchedulersLossesWithAnothersChangeNothing) {
  ExpectTwoSchedulerLosses(43, 11, true);
}

TEST(RecoveryTest, SlowSchedulersLossesChangeNothing) {
  ExpectTwoSchedulerLosses(1, 1, false);
  ExpectTwoSchedulerLosses(1, 1, true);
}

// What the journal is good for: a scheduler that acts before it has written down what it does leaves
// jobs that its successor can't go on with.
TEST(RecoveryTest, WithoutTheJournalBeforeTheMessageJobsFail) {
  int failed = 0;
  for (SimulatedClusterOptions& options : TinyTrainings()) {
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
    options.lying_disk = true;
    for (int64_t at = 1; at <= envelopes; at += 3) {
      LossesAtEnvelopes job(options, {{kTheScheduler, at}});
      bool same = job.Run();
      for (int rank = 0; same && rank < options.job.cluster().workers(); ++rank) {
        same = job.cluster().node({Role::kWorker, rank}).end->exit_code() == 0 &&
               ParametersOf(job.cluster(), rank) == undisturbed.parameters;
      }
      failed += same ? 0 : 1;
    }
  }
  EXPECT_GT(failed, 0);
}

TEST(RecoveryTest, ALossAtAnyEnvelopeChangesNothing) { ExpectLossAtAnyEnvelope(1, false); }

TEST(RecoveryTest, TwoLossesAtAnyEnvelopesChangeNothing) { ExpectLossAtAnyEnvelope(1, true); }

// Looks for processes that have been given up, and starts others.
void Supervise(SimulatedCluster& cluster) {
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (!node.end || node.end->exit_code() != static_cast<int>(ExitCode::kGivenUp)) continue;
    cluster.RestartAt(cluster.runtime().now(), node.id, false);
  }
  const NodeRecord& scheduler = cluster.node({Role::kScheduler, 0});
  if (scheduler.end) return;
  cluster.runtime().At(cluster.runtime().now() + Seconds(0.5), [&cluster] { Supervise(cluster); });
}

// Trains on a network with faults, among nodes whose supervisors start them again, to the same
// bits. `cut` may not have heard of the end.
void ExpectSameDespite(const SimulatedClusterOptions& options, const Undisturbed& undisturbed,
                       const std::optional<NodeId>& cut,
                       const std::function<void(SimulatedCluster&)>& prepare) {
  SimulatedCluster cluster(options);
  prepare(cluster);
  Supervise(cluster);
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    ASSERT_TRUE(node.end) << node.id.ToString();
    const bool unaware = cut == node.id && node.end->exit_code() == 3;
    EXPECT_TRUE(unaware || node.end->exit_code() == 0)
        << node.id.ToString() << ": " << node.end->reason();
  }
  if (testing::Test::HasFailure()) return;
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(ParametersOf(cluster, rank), undisturbed.parameters) << "worker " << rank;
  }
}

TEST(RecoveryTest, LostFramesDoNotEndTheJob) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = RecoveringTraining(seed);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    options.network.seed = seed;
    options.network.faults = {
        .drop = 0.001, .duplicate = 0.1, .delay = 0.3, .max_delay = std::chrono::milliseconds(2)};
    bool faulty = true;
    options.network.fault_filter = [&](const Envelope& envelope) {
      return faulty && IsData(envelope);
    };
    ExpectSameDespite(options, undisturbed, std::nullopt, [&](SimulatedCluster& cluster) {
      // Two or three times as long as it takes to notice that a frame is lost.
      cluster.runtime().At(Seconds(20), [&] { faulty = false; });
    });
    if (HasFailure()) return;
  }
}

TEST(RecoveryTest, ACutThatHealsChangesNothing) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = RecoveringTraining(seed);
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
    ExpectSameDespite(options, undisturbed, cut.node, [&](SimulatedCluster& cluster) {
      cluster.runtime().At(cut.when, [&] { is_cut = true; });
      cluster.runtime().At(cut.when + 3 * cut.restart_after, [&] { is_cut = false; });
    });
    if (HasFailure()) return;
  }
}

// `scheduler`: it is one of the two that are lost.
void ExpectPlanChanges(uint64_t begin, uint64_t end, bool scheduler) {
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
    SimulatedCluster cluster(options);
    AskAt(first.when - std::min<Duration>(first.when, Seconds(0.002)), plan, cluster);
    for (const Loss& loss : {first, second}) {
      cluster.KillAt(loss.when, loss.node);
      cluster.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
    }
    ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
    if (LostAll(cluster, {first, second})) continue;
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    if (testing::Test::HasFailure()) return;
    for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
      EXPECT_LT(Difference(ParametersOf(cluster, rank), serial), bound) << "worker " << rank;
      EXPECT_EQ(ParametersOf(cluster, rank), ParametersOf(cluster, 0)) << "worker " << rank;
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST(RecoveryTest, LossesWhileThePlanChangesChangeNothing) {
  ExpectPlanChanges(0, kQuickSeeds, false);
}

TEST(RecoveryTest, TheSchedulersLossWhileThePlanChangesChangesNothing) {
  ExpectPlanChanges(0, kQuickSeeds / 4, true);
}

TEST(RecoveryTest, SlowSchedulersLossesWhileThePlanChangesChangeNothing) {
  ExpectPlanChanges(kQuickSeeds, 10 * kQuickSeeds, true);
}

TEST(RecoveryTest, OneLossChangesNothing) { ExpectRecoveries(0, kQuickSeeds, 1); }

TEST(RecoveryTest, LossesDuringRecoveryChangeNothing) { ExpectRecoveries(0, kQuickSeeds, 4); }

TEST(RecoveryTest, LossesOfAllNodesChangeNothing) {
  ExpectRecoveries(0, kQuickSeeds / 4, 2, 2);
}

TEST(RecoveryTest, SlowLossesChangeNothing) {
  ExpectRecoveries(kQuickSeeds, kSeeds, 1);
  ExpectRecoveries(kQuickSeeds, kSeeds, 4);
}

TEST(RecoveryTest, SlowLossesOfAllNodesChangeNothing) {
  ExpectRecoveries(kQuickSeeds, kSeeds / 4, 2, 2);
}

}  // namespace
}  // namespace poseidon
