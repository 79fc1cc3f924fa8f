#include "tests/simulation/recovery/recovery_case.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "proto/plan_members.h"
#include "scheduler/journal/job_state.h"

namespace poseidon {

using testing::HasSubstr;

namespace {

void MakeRecovering(Job& job) {
  Communication& communication = *job.mutable_communication();
  communication.set_update_at(Communication::WORKERS);
  communication.set_deterministic(true);
  communication.set_heartbeat_interval_seconds(0.25);
  communication.set_heartbeat_deadline_seconds(1);
  communication.set_stall_deadline_seconds(5);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  job.mutable_recovery()->set_give_up_after(100);
  // Longer than any scheduler of these tests is away; so long it waits for nodes from which it
  // seems to be cut off.
  job.mutable_recovery()->set_scheduler_deadline_seconds(10);
}

}  // namespace

SimulatedClusterOptions RecoveringTraining(uint64_t seed) {
  SimulatedClusterOptions options = RandomTraining(seed);
  Communication& communication = *options.job.mutable_communication();
  if (communication.policy() == Communication::ALL_ADAM) {
    communication.set_policy(Communication::ALL_PS);
  }
  MakeRecovering(options.job);
  options.disk.delay = std::chrono::milliseconds(seed % 3 == 0 ? 0 : seed % 19);
  options.work.iterations += 3 + static_cast<int64_t>(seed % 12);
  options.work.tells_iterations = seed % 2 == 0;
  return options;
}

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
    if (policy == C::ALL_RING) options.disk.delay = std::chrono::milliseconds(1);
    trainings.push_back(std::move(options));
  }
  return trainings;
}

std::string ToString(const Loss& loss) {
  return loss.node.ToString() + " dies at " + std::to_string(ToSeconds(loss.when)) +
         " s, another " + std::to_string(ToSeconds(loss.restart_after)) + " s later" +
         (loss.supervised ? ", supervised; " : "; ");
}

Undisturbed TrainUndisturbed(const SimulatedClusterOptions& options) {
  WatchedJob job(options);
  SimulatedCluster& cluster = job.cluster();
  EXPECT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  if (testing::Test::HasFailure()) return {};
  return {ParametersOf(cluster, 0), cluster.trainer(0).iterations.front().begin,
          cluster.trainer(0).finished};
}

namespace {

// Who is lost, of losses of either kind.
template <typename AnyLoss>
std::vector<NodeId> NodesOf(const std::vector<AnyLoss>& losses) {
  std::vector<NodeId> nodes;
  for (const AnyLoss& loss : losses) nodes.push_back(loss.node);
  return nodes;
}

// Who is left has never had the parameters: not when the last plan was made, at the job's start,
// and no iteration has been done here since.
bool OnlyNewcomersAreLeft(const SimulatedCluster& cluster, const std::set<NodeId>& lost) {
  const Plan plan = LastPlan(cluster);
  if (plan.holders().empty() || plan.start_iteration() > 0) return false;
  for (int place = 0; place < plan.workers(); ++place) {
    const int rank = RankOfWorker(plan, place);
    if (lost.contains({Role::kWorker, rank})) continue;
    const bool held = std::ranges::find(plan.holders(), place) != plan.holders().end();
    if (held || !cluster.trainer(rank).iterations.empty()) return false;
  }
  return true;
}

bool LostAllOf(const SimulatedCluster& cluster, const std::vector<NodeId>& losses) {
  const std::optional<wire::End>& end = cluster.node({Role::kScheduler, 0}).end;
  if (!end || end->exit_code() != static_cast<int>(ExitCode::kPeerLost)) return false;
  const std::set<NodeId> lost(losses.begin(), losses.end());
  const auto count = [&lost](Role role) {
    return std::ranges::count_if(lost, [&](const NodeId& node) { return node.role == role; });
  };
  if (end->reason().starts_with("lost both servers that kept a part of the parameters")) {
    EXPECT_GE(count(Role::kServer), 2) << "one of them is left";
    return true;
  }
  EXPECT_THAT(end->reason(), HasSubstr("lost every node that had the parameters"));
  EXPECT_TRUE(count(Role::kWorker) >= LastPlan(cluster).workers() ||
              OnlyNewcomersAreLeft(cluster, lost))
      << "a worker that had the parameters is left";
  return true;
}

// All have ended well, but that a process which was started after the job's end found nobody.
void ExpectEnded(const SimulatedCluster& cluster, const std::vector<NodeId>& lost) {
  const std::optional<wire::End>& job = cluster.node({Role::kScheduler, 0}).end;
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed) continue;
    ASSERT_TRUE(node.end) << node.id.ToString() << " has not ended";
    const bool died =
        std::ranges::any_of(lost, [&](const NodeId& other) { return other.role == node.id.role; });
    const bool too_late = died && job && job->exit_code() == 0 &&
                          node.end->exit_code() == static_cast<int>(ExitCode::kDeadlineExceeded);
    EXPECT_TRUE(too_late || node.end->exit_code() == 0)
        << node.id.ToString() << ": " << node.end->reason();
  }
}

// The scheduler that ended has heard how each worker's iterations went, all of them.
void ExpectAllReported(const SimulatedCluster& cluster, const SimulatedClusterOptions& options) {
  for (int64_t iteration = 0; iteration < options.work.iterations; ++iteration) {
    const auto found = cluster.scheduler().reported.find(iteration);
    ASSERT_NE(found, cluster.scheduler().reported.end()) << "iteration " << iteration;
    EXPECT_EQ(found->second.size(), static_cast<size_t>(options.job.cluster().workers()))
        << "iteration " << iteration;
  }
}

}  // namespace

void Lose(const Loss& loss, WatchedJob& job) {
  job.KillAt(loss.when, loss.node);
  job.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
}

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

bool LostAll(const SimulatedCluster& cluster, const std::vector<Loss>& losses) {
  return LostAllOf(cluster, NodesOf(losses));
}

int ExpectSameAfter(const SimulatedClusterOptions& options, const Undisturbed& expected,
                    const std::vector<Loss>& losses) {
  std::string faults;
  for (const Loss& loss : losses) faults += ToString(loss);
  SCOPED_TRACE(faults);
  WatchedJob job(options);
  for (const Loss& loss : losses) Lose(loss, job);
  SimulatedCluster& cluster = job.cluster();
  EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
  if (LostAll(cluster, losses)) return 1;
  ExpectEnded(cluster, NodesOf(losses));
  if (testing::Test::HasFailure()) return 0;
  for (int rank = 0; rank < options.job.cluster().workers(); ++rank) {
    EXPECT_EQ(ParametersOf(cluster, rank), expected.parameters) << "worker " << rank;
  }
  return static_cast<int>(cluster.scheduler().recoveries.size());
}

Envelopes TrainWithLosses(const SimulatedClusterOptions& options, const Parameters& expected,
                          const std::vector<LossAtEnvelope>& losses) {
  LossesAtEnvelopes job(options, losses);
  const SimulatedCluster& simulated = job.cluster();
  EXPECT_TRUE(job.Run()) << "it hangs";
  const Envelopes envelopes{job.envelopes(), job.envelopes_since_restart()};
  if (LostAllOf(simulated, NodesOf(losses))) return envelopes;
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

void ExpectLossAtAnyEnvelope(const SimulatedClusterOptions& options, bool pairs, int64_t stride) {
  const Undisturbed undisturbed = TrainUndisturbed(options);
  const int64_t envelopes = TrainWithLosses(options, {}, {}).all;
  int64_t offset = 0;
  for (const NodeSpec& victim : options.layout.nodes) {
    if (victim.id.role == Role::kScheduler) continue;
    for (int64_t at = 1 + offset++ % stride; at <= envelopes; at += stride) {
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

SimulatedClusterOptions UpdatingAtServers(SimulatedClusterOptions options,
                                          Communication::Policy policy) {
  Communication& communication = *options.job.mutable_communication();
  communication.set_policy(policy);
  communication.set_update_at(Communication::SERVERS);
  if (options.job.cluster().servers() > 1) return options;
  options.job.mutable_cluster()->set_servers(2);
  AddNode({Role::kServer, 1}, Time{}, options);
  return options;
}

SimulatedClusterOptions Shrinking(SimulatedClusterOptions options) {
  options.job.mutable_recovery()->set_mode(Recovery::SHRINK);
  options.job.mutable_recovery()->set_replacement_deadline_seconds(5);
  return options;
}

void AddNode(const NodeId& id, Time start, SimulatedClusterOptions& options) {
  NodeSpec node;
  node.id = id;
  node.machine = static_cast<int>(options.layout.machines.size());
  node.start = start;
  options.layout.machines.push_back(options.layout.machines.front());
  options.layout.nodes.push_back(node);
}

WorkersOf TenuresOf(const Plan& plan) {
  return [plan](int64_t iteration) {
    int workers = plan.workers();
    for (const Tenure& tenure : plan.tenures()) {
      if (tenure.start_iteration() <= iteration) workers = tenure.workers();
    }
    return workers;
  };
}

Plan LastPlan(const SimulatedCluster& cluster) {
  JobState state;
  for (const wire::JournalRecord& record : cluster.scheduler().journal) state.Apply(record);
  return state.plan ? state.plan->plan() : Plan();
}

bool GoesBy(const wire::PlanAndModel& asked, const SimulatedCluster& cluster) {
  const auto cut = [](const BucketPlan& bucket) {
    return std::pair(bucket.scheme(), bucket.chunks_size());
  };
  return std::ranges::equal(asked.plan().buckets(), LastPlan(cluster).buckets(), {}, cut, cut);
}

// What is to be trained, with the learning rate of each of the plan's tenures.
TrainingWork WithRates(const SimulatedClusterOptions& options, const Plan& plan) {
  TrainingWork work = options.work;
  if (options.job.elastic().learning_rate() != Elastic::LINEAR) return work;
  for (const Tenure& tenure : plan.tenures()) {
    RateScale& scale = *work.model.mutable_update_rule()->add_rate_scales();
    scale.set_start_iteration(tenure.start_iteration());
    scale.set_scale(static_cast<float>(tenure.workers()) /
                    static_cast<float>(options.job.cluster().workers()));
  }
  return work;
}

void ExpectTrained(const SimulatedCluster& cluster, const SimulatedClusterOptions& options) {
  const Plan plan = LastPlan(cluster);
  const WorkersOf workers = TenuresOf(plan);
  const Parameters first = ParametersOf(cluster, RankOfWorker(plan, 0));
  for (int place = 1; place < plan.workers(); ++place) {
    EXPECT_EQ(ParametersOf(cluster, RankOfWorker(plan, place)), first) << "place " << place;
  }
  const TrainingWork work = WithRates(options, plan);
  EXPECT_LE(Difference(first, TrainSerially(work, workers)), RoundingBound(work, workers));
}

}  // namespace poseidon
