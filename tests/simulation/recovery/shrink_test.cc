// Nodes of a job with recovery.mode SHRINK die, and the others go on: to what one process computes
// that averages, in each iteration, the gradients of as many workers as there were then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "planner/job_plan.h"
#include "proto/plan_members.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/slow_seeds.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kQuickSeeds = 6;
constexpr uint64_t kSeeds = 1000;

bool Contains(const std::vector<NodeId>& nodes, const NodeId& id) {
  return std::ranges::find(nodes, id) != nodes.end();
}

// The job can't go on without those that are lost: nobody had values yet, nobody has them any more,
// or no server is left.
bool MayEndBadly(const SimulatedCluster& cluster, const std::vector<NodeId>& lost) {
  const wire::End& end = *cluster.node(kTheScheduler).end;
  bool any_worker = false;
  bool any_server = false;
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeId& id = cluster.node(i).id;
    if (id.role == Role::kWorker) any_worker |= !Contains(lost, id);
    if (id.role == Role::kServer) any_server |= !Contains(lost, id);
  }
  if (end.exit_code() == static_cast<int>(ExitCode::kPeerLost)) {
    EXPECT_THAT(end.reason(), HasSubstr("lost every node that had the parameters"));
    // Others may not have got any yet when those die that have some.
    const Plan plan = LastPlan(cluster);
    return !any_worker || (plan.start_iteration() == 0 && !plan.holders().empty());
  }
  EXPECT_EQ(end.exit_code(), static_cast<int>(ExitCode::kDeadlineExceeded)) << end.reason();
  EXPECT_THAT(end.reason(), HasSubstr("nobody took the place"));
  // Until the first update the one worker that has values may be the one that is lost.
  return !any_worker || !any_server || LastPlan(cluster).start_iteration() == 0;
}

// The tenures change where the job went back to, to as many workers as the last plan has.
void ExpectTenures(const SimulatedCluster& cluster, int workers) {
  const Plan plan = LastPlan(cluster);
  if (plan.tenures().empty()) {
    EXPECT_EQ(plan.workers(), workers);
    return;
  }
  EXPECT_EQ(plan.tenures(0).start_iteration(), 0);
  EXPECT_EQ(plan.tenures(plan.tenures_size() - 1).workers(), plan.workers());
  for (int i = 1; i < plan.tenures_size(); ++i) {
    const Tenure& tenure = plan.tenures(i);
    EXPECT_GT(tenure.start_iteration(), plan.tenures(i - 1).start_iteration());
    EXPECT_LT(tenure.workers(), plan.tenures(i - 1).workers());
    EXPECT_TRUE(std::ranges::any_of(cluster.scheduler().recoveries,
                                    [&](const wire::Recovered& recovered) {
                                      return recovered.iteration() == tenure.start_iteration();
                                    }))
        << "tenure from " << tenure.start_iteration();
  }
}

// Of a job that has run to its end. Whether it has shrunk.
bool ExpectWentOn(const SimulatedCluster& cluster, const SimulatedClusterOptions& options,
                  const std::vector<NodeId>& lost) {
  EXPECT_TRUE(cluster.node(kTheScheduler).end) << "it hangs";
  if (testing::Test::HasFailure()) return false;
  if (cluster.node(kTheScheduler).end->exit_code() != 0) {
    EXPECT_TRUE(MayEndBadly(cluster, lost)) << cluster.node(kTheScheduler).end->reason();
    return false;
  }
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed || Contains(lost, node.id)) continue;  // or refused, as its place is gone
    EXPECT_TRUE(node.end && node.end->exit_code() == 0) << node.id.ToString();
  }
  if (testing::Test::HasFailure()) return false;
  ExpectTenures(cluster, options.job.cluster().workers());
  ExpectTrained(cluster, options);
  return !LastPlan(cluster).tenures().empty();
}

// Half of the lost come back, to find that they are needed, or not.
void ExpectShrinking(uint64_t begin, uint64_t end, int losses, bool with_scheduler) {
  int shrunk = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const SimulatedClusterOptions options = Shrinking(RecoveringTraining(seed));
    const Undisturbed undisturbed = TrainUndisturbed(options);
    Faults faults(seed, options, undisturbed);
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    std::vector<NodeId> lost;
    const auto lose = [&](const Loss& loss, bool restarts) {
      job.KillAt(loss.when, loss.node);
      if (restarts) job.RestartAt(loss.when + loss.restart_after, loss.node, loss.supervised);
      if (loss.node.role != Role::kScheduler) lost.push_back(loss.node);
    };
    for (int i = 0; i < losses; ++i) {
      const Loss loss = faults.Draw();
      lose(loss, loss.when.count() % 2 == 0);
    }
    if (with_scheduler) lose(faults.Draw(kTheScheduler), true);
    EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
    shrunk += ExpectWentOn(cluster, options, lost) ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(shrunk, static_cast<int>(end - begin) / 5) << "the faults hit nothing";
}

TEST(ShrinkTest, ALossLeavesTheOthersTraining) { ExpectShrinking(0, kQuickSeeds, 1, false); }

TEST(ShrinkTest, SeveralLossesLeaveTheOthersTraining) { ExpectShrinking(0, kQuickSeeds, 3, false); }

TEST(ShrinkTest, LossesWithTheSchedulersLeaveTheOthersTraining) {
  ExpectShrinking(0, kQuickSeeds, 2, true);
}

TEST(ShrinkTest, SlowLossesLeaveTheOthersTraining) {
  ExpectShrinking(kQuickSeeds, SlowSeeds(kSeeds), 1, false);
  ExpectShrinking(kQuickSeeds, SlowSeeds(kSeeds), 3, false);
  ExpectShrinking(kQuickSeeds, SlowSeeds(kSeeds), 2, true);
}

// Under REPLACE, where others wait in vain for somebody to take the place.
void ExpectShrinkingAtLast(uint64_t begin, uint64_t end) {
  int shrunk = 0;
  for (uint64_t seed = begin; seed < end; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SimulatedClusterOptions options = RecoveringTraining(seed);
    Recovery& recovery = *options.job.mutable_recovery();
    recovery.set_otherwise(Recovery::SHRINK);
    recovery.set_replacement_deadline_seconds(1 + 0.5 * static_cast<double>(seed % 4));
    Faults faults(seed, options, TrainUndisturbed(options));
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    std::vector<NodeId> lost;
    for (uint64_t i = 0; i <= seed % 2; ++i) {
      // Some come back in time, others too late or never.
      const Loss loss = faults.Draw();
      job.KillAt(loss.when, loss.node);
      if (seed % 3 == 0) {
        job.RestartAt(loss.when + 2 * loss.restart_after, loss.node, loss.supervised);
      }
      lost.push_back(loss.node);
    }
    if (seed % 5 == 0) {
      const Loss loss = faults.Draw(kTheScheduler);
      job.KillAt(loss.when, kTheScheduler);
      job.RestartAt(loss.when + loss.restart_after, kTheScheduler, true);
    }
    EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
    shrunk += ExpectWentOn(cluster, options, lost) ? 1 : 0;
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(shrunk, static_cast<int>(end - begin) / 5) << "the faults hit nothing";
}

TEST(ShrinkTest, WhereNobodyTakesThePlaceInTime) { ExpectShrinkingAtLast(0, kQuickSeeds); }

TEST(ShrinkTest, SlowWhereNobodyTakesThePlaceInTime) {
  ExpectShrinkingAtLast(kQuickSeeds, SlowSeeds(kSeeds));
}

// Kills every node at every `stride`th envelope, and with it what `others` says.
using OtherLosses =
    std::function<std::vector<LossAtEnvelope>(const SimulatedClusterOptions&, int64_t envelope)>;

void ExpectShrinkingAtAnyEnvelope(int64_t stride, const OtherLosses& others) {
  int shrunk = 0;
  int64_t offset = 0;
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    const SimulatedClusterOptions options = Shrinking(tiny);
    SCOPED_TRACE(Communication::Policy_Name(options.job.communication().policy()));
    LossesAtEnvelopes undisturbed(options, {});
    ASSERT_TRUE(undisturbed.Run());
    for (const NodeSpec& victim : options.layout.nodes) {
      if (victim.id.role == Role::kScheduler) continue;
      for (int64_t at = 1 + ++offset % stride; at <= undisturbed.envelopes(); at += stride) {
        SCOPED_TRACE(victim.id.ToString() + " at envelope " + std::to_string(at));
        std::vector<LossAtEnvelope> losses = others(options, at);
        losses.insert(losses.begin(), {.node = victim.id, .envelope = at, .restarts = false});
        std::vector<NodeId> lost;
        for (const LossAtEnvelope& loss : losses) {
          if (loss.node.role != Role::kScheduler) lost.push_back(loss.node);
        }
        LossesAtEnvelopes job(options, losses);
        EXPECT_TRUE(job.Run()) << "it hangs";
        const SimulatedCluster& cluster = job.cluster();
        const bool before_it_began =
            cluster.node(kTheScheduler).end && cluster.scheduler().progress_messages == 0;
        // Who does not come at all is missed by the gathering job, as without recovery.
        if (before_it_began && cluster.node(kTheScheduler).end->exit_code() != 0) continue;
        shrunk += ExpectWentOn(cluster, options, lost) ? 1 : 0;
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(shrunk, 0);
}

NodeId OtherNode(const SimulatedClusterOptions& options, int64_t draw) {
  // The scheduler is the first.
  const size_t index = 1 + static_cast<size_t>(draw) % (options.layout.nodes.size() - 1);
  return options.layout.nodes[index].id;
}

std::vector<LossAtEnvelope> Nobody(const SimulatedClusterOptions&, int64_t) { return {}; }

std::vector<LossAtEnvelope> AnotherNode(const SimulatedClusterOptions& options, int64_t at) {
  return {{.node = OtherNode(options, at), .envelope = at + 1 + at % 97, .restarts = false}};
}

std::vector<LossAtEnvelope> TheScheduler(const SimulatedClusterOptions&, int64_t at) {
  return {{.node = kTheScheduler, .envelope = at + 1 + at % 61}};
}

// Not every envelope in the quick run, but each node at others.
TEST(ShrinkTest, ALossAtAnyEnvelopeLeavesTheOthersTraining) {
  ExpectShrinkingAtAnyEnvelope(5, Nobody);
}

TEST(ShrinkTest, TwoLossesAtAnyEnvelopesLeaveTheOthersTraining) {
  ExpectShrinkingAtAnyEnvelope(11, AnotherNode);
}

TEST(ShrinkTest, ALossWithTheSchedulersAtAnyEnvelopesLeavesTheOthersTraining) {
  ExpectShrinkingAtAnyEnvelope(11, TheScheduler);
}

TEST(ShrinkTest, SlowLossesAtEveryEnvelopeLeaveTheOthersTraining) {
  ExpectShrinkingAtAnyEnvelope(1, Nobody);
  ExpectShrinkingAtAnyEnvelope(1, AnotherNode);
  ExpectShrinkingAtAnyEnvelope(1, TheScheduler);
}

// The bound is one: the gradients of the lost are not in it by chance.
TEST(ShrinkTest, TheSerialTrainingOfAllWorkersIsAnother) {
  const SimulatedClusterOptions options = Shrinking(TinyTrainings().front());
  LossesAtEnvelopes undisturbed(options, {});
  ASSERT_TRUE(undisturbed.Run());
  const NodeId victim{Role::kWorker, 1};
  LossesAtEnvelopes job(
      options, {{.node = victim, .envelope = undisturbed.envelopes() * 3 / 4, .restarts = false}});
  ASSERT_TRUE(job.Run());
  ASSERT_TRUE(ExpectWentOn(job.cluster(), options, {victim}));
  const Plan plan = LastPlan(job.cluster());
  EXPECT_EQ(plan.workers(), 2);
  EXPECT_EQ(RankOfWorker(plan, 1), 2);
  EXPECT_GT(Difference(ParametersOf(job.cluster(), 0), TrainSerially(options.work, 3)),
            RoundingBound(options.work, TenuresOf(plan)));
}

// What is known of a machine is of the same machine where its worker has another place; nothing is
// left of the lost one's.
TEST(ShrinkTest, WhatIsKnownOfMachinesGoesWithTheirWorkers) {
  SimulatedClusterOptions options = Shrinking(TinyTrainings().front());
  for (const int worker : {1, 2}) {
    Deviation& deviation = *options.job.mutable_cluster()->add_deviation();
    deviation.set_worker(worker);
    deviation.set_compute_factor(1 + worker);
  }
  std::vector<std::string> planned;
  options.planner = [&](const InformationBook& book, const Job& job) {
    planned.emplace_back();
    for (const Deviation& deviation : job.cluster().deviation()) {
      planned.back() += deviation.ShortDebugString() + "; ";
    }
    return PlanJob(book, job);
  };
  LossesAtEnvelopes undisturbed(options, {});
  ASSERT_TRUE(undisturbed.Run());
  planned.clear();
  const int64_t at = undisturbed.envelopes() * 3 / 4;
  LossesAtEnvelopes job(options, {{.node = {Role::kWorker, 1}, .envelope = at, .restarts = false}});
  ASSERT_TRUE(job.Run());
  EXPECT_THAT(planned,
              testing::ElementsAre("worker: 1 compute_factor: 2; worker: 2 compute_factor: 3; ",
                                   "worker: 1 compute_factor: 3; "));
}

// The slow worker is lost when the others have told how long their layers take, and it has not yet:
// what they have measured leads to another plan under which the two go on.
TEST(ShrinkTest, TheLayerTimesOfALostWorkerAreNotWaitedFor) {
  SimulatedClusterOptions options = Shrinking(TinyTrainings().front());
  options.job.mutable_communication()->set_policy(Communication::TIME);
  options.work.iterations = 24;
  const NodeId slow{Role::kWorker, 2};
  options.layout.nodes[options.layout.IndexOf(slow)].compute_factor = 3;
  options.replan = [&](const wire::PlanAndModel& current, const wire::LayerTimes&) {
    Job left = options.job;
    left.mutable_cluster()->set_workers(current.plan().workers());
    left.mutable_communication()->set_lanes(current.plan().lanes());
    wire::PlanAndModel next = current;
    *next.mutable_plan() = PlanJob(InformationBook(next.model(), left.cluster()), left);
    return next;
  };
  WatchedJob* watched = nullptr;
  int told = 0;
  options.network.processing = [&](const Envelope& envelope) {
    const bool is_report =
        envelope.kind == MessageKind::kLayerTimes && envelope.from.node.role == Role::kWorker;
    if (is_report && ++told == 2) watched->KillAt(watched->cluster().runtime().now(), slow);
    return Duration::zero();
  };
  WatchedJob job(options);
  watched = &job;
  SimulatedCluster& cluster = job.cluster();
  ASSERT_TRUE(cluster.Run(kHung)) << "it hangs";
  EXPECT_EQ(told, 2);
  ASSERT_TRUE(cluster.scheduler().times);
  for (int layer = 0; layer < options.work.model.layers_size(); ++layer) {
    const ComputeStep& step = options.work.timeline.steps[layer];
    EXPECT_NEAR(cluster.scheduler().times->forward_ms(layer), 1000 * ToSeconds(step.forward), 1e-5);
    EXPECT_NEAR(cluster.scheduler().times->backward_ms(layer), 1000 * ToSeconds(step.backward),
                1e-5);
  }
  EXPECT_EQ(LastPlan(cluster).workers(), 2);
  EXPECT_EQ(LastPlan(cluster).number(), 2) << "after the loss, and by the times";
  ExpectTrained(cluster, options);
}

// A job needs a server, for which it waits.
// Both servers of every tiny job die, rank 0 first, and processes take the ranks that come back.
void ExpectAServerTakesTheLastOnesPlace(Duration between, const std::vector<int>& come_back) {
  for (const SimulatedClusterOptions& tiny : TinyTrainings()) {
    const SimulatedClusterOptions options = Shrinking(tiny);
    const Undisturbed undisturbed = TrainUndisturbed(options);
    const Time when = undisturbed.begun + (undisturbed.finished - undisturbed.begun) / 2;
    WatchedJob job(options);
    SimulatedCluster& cluster = job.cluster();
    for (int rank = 0; rank < 2; ++rank) job.KillAt(when + rank * between, {Role::kServer, rank});
    for (const int rank : come_back) {
      job.RestartAt(when + between + Seconds(3), {Role::kServer, rank}, false);
    }
    EXPECT_TRUE(cluster.Run(kHung)) << "it hangs";
    ASSERT_EQ(cluster.node(kTheScheduler).end->exit_code(), 0)
        << cluster.node(kTheScheduler).end->reason();
    ExpectTrained(cluster, options);
    // A job whose plan has no use for servers may end before their loss is noticed.
    const bool noticed = !cluster.scheduler().recoveries.empty();
    EXPECT_EQ(LastPlan(cluster).servers(), noticed ? 1 : 2);
    EXPECT_TRUE(noticed || options.job.communication().policy() != Communication::ALL_PS);
  }
}

TEST(ShrinkTest, AnotherProcessTakesTheLastServersPlace) {
  ExpectAServerTakesTheLastOnesPlace({}, {0, 1});
}

TEST(ShrinkTest, AnyOfTheServersIsEnough) { ExpectAServerTakesTheLastOnesPlace({}, {1}); }

TEST(ShrinkTest, AServerThatDiedLaterTakesItsPlaceAgain) {
  ExpectAServerTakesTheLastOnesPlace(Seconds(1), {1});
}

}  // namespace
}  // namespace poseidon
