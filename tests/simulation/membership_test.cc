// How a job gathers its nodes, and what becomes of those that do not fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

SimulatedClusterOptions ShortTraining() {
  SimulatedClusterOptions options = MixedTraining(2, std::chrono::milliseconds(1));
  options.job.mutable_cluster()->set_join_deadline_seconds(20);
  return options;
}

NodeSpec& SpecOf(const NodeId& id, SimulatedClusterOptions& options) {
  return options.layout.nodes[options.layout.IndexOf(id)];
}

void ExpectEnd(const SimulatedCluster& cluster, size_t node, ExitCode code,
               const std::string& reason) {
  ASSERT_TRUE(cluster.node(node).end);
  EXPECT_EQ(cluster.node(node).end->exit_code(), static_cast<int>(code));
  EXPECT_THAT(cluster.node(node).end->reason(), HasSubstr(reason));
}

TEST(MembershipTest, NodesMayStartInAnyOrderAndLate) {
  for (const NodeSpec& late : ShortTraining().layout.nodes) {
    SCOPED_TRACE(late.id.ToString());
    SimulatedClusterOptions options = ShortTraining();
    SpecOf(late.id, options).start = Seconds(15);
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    // A node repeats its registration every second until the scheduler is there.
    EXPECT_THAT(ToSeconds(cluster.runtime().now()), AllOf(testing::Ge(15), testing::Lt(16.5)));
  }
}

TEST(MembershipTest, NodesWithoutAWishGetTheRanksThatAreLeftPairedByMachine) {
  SimulatedClusterOptions options = ShortTraining();
  for (NodeSpec& node : options.layout.nodes) {
    if (node.id.role != Role::kScheduler && node.id != NodeId{Role::kWorker, 2}) node.id.rank = -1;
  }
  SpecOf({Role::kWorker, -1}, options).start = Seconds(1);
  options.layout.nodes[6].start = Seconds(0.5);
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  std::vector<std::string> names;
  for (size_t i = 0; i < cluster.nodes(); ++i) names.push_back(cluster.node(i).id.ToString());
  // The servers share machines 0 and 1 with the first two workers, of which the first came last;
  // the third one asked for its rank.
  EXPECT_THAT(names, testing::ElementsAre("the scheduler", "server 1", "server 0", "worker 1",
                                          "worker 0", "worker 2", "worker 3"));
}

TEST(MembershipTest, LostControlFramesOfTheGatheringAreRepeated) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = ShortTraining();
    options.network.seed = seed;
    options.network.faults.drop = 0.2;
    options.network.faults.duplicate = 0.4;
    options.network.fault_filter = [](const Envelope& envelope) {
      return envelope.kind == MessageKind::kRegister || envelope.kind == MessageKind::kView;
    };
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    if (HasFailure()) return;
  }
}

TEST(MembershipTest, ASecondNodeWithARankIsRefused) {
  SimulatedClusterOptions options = ShortTraining();
  SpecOf({Role::kWorker, 3}, options).start = Seconds(3);
  NodeSpec rival = SpecOf({Role::kWorker, 1}, options);
  rival.start = Seconds(1);
  options.layout.nodes.push_back(rival);
  NodeSpec beyond = rival;
  beyond.id.rank = 4;
  options.layout.nodes.push_back(beyond);
  NodeSpec any = rival;
  any.id.rank = -1;
  any.start = Seconds(3.5);
  options.layout.nodes.push_back(any);
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectEnd(cluster, 7, ExitCode::kRefused,
            "rank 1 is already taken by worker 1 (machine1, process 4); give each worker a rank of "
            "its own");
  ExpectEnd(cluster, 8, ExitCode::kRefused,
            "there is no worker rank 4: the config has 4 worker(s), ranks count from 0");
  EXPECT_EQ(cluster.node({Role::kWorker, 1}).end->exit_code(), 0);
  EXPECT_EQ(cluster.node(0).end->exit_code(), 0);
  EXPECT_EQ(cluster.scheduler().reports.size(), 4u);
}

TEST(MembershipTest, ANodeTooManyIsRefused) {
  SimulatedClusterOptions options = MixedTraining(50, Seconds(0.1));
  NodeSpec extra = SpecOf({Role::kWorker, 1}, options);
  extra.id.rank = -1;
  extra.start = Seconds(2);
  options.layout.nodes.push_back(extra);
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectEnd(cluster, 7, ExitCode::kRefused, "the config has 4 worker(s) and all of them are here");
  EXPECT_EQ(cluster.node(0).end->exit_code(), 0);
}

TEST(MembershipTest, ANodeWithAnotherConfigIsRefused) {
  SimulatedClusterOptions options = ShortTraining();
  SpecOf({Role::kServer, 1}, options).job_fingerprint = 2;
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectEnd(cluster, 2, ExitCode::kRefused,
            "the scheduler refused this server: its job config differs from the scheduler's");
  EXPECT_LT(cluster.node(2).ended, Seconds(1));
  ExpectEnd(cluster, 0, ExitCode::kDeadlineExceeded, "still missing server 1 after 20 s");
}

TEST(MembershipTest, MissingNodesAreNamedAtTheJoinDeadline) {
  SimulatedClusterOptions options = ShortTraining();
  for (const NodeId& id :
       {NodeId{Role::kWorker, 1}, NodeId{Role::kWorker, 3}, NodeId{Role::kServer, 0}}) {
    options.layout.nodes.erase(options.layout.nodes.begin() +
                               static_cast<std::ptrdiff_t>(options.layout.IndexOf(id)));
  }
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kDeadlineExceeded);
  EXPECT_THAT(cluster.node({Role::kWorker, 0}).end->reason(),
              HasSubstr("still missing 2 workers (ranks 1, 3) and server 0 after 20 s"));
  EXPECT_LT(cluster.runtime().now(), Seconds(20.1));
}

TEST(MembershipTest, WithoutASchedulerNodesGiveUpAtTheJoinDeadline) {
  SimulatedClusterOptions options = ShortTraining();
  SpecOf({Role::kScheduler, 0}, options).start = Seconds(1000);
  SimulatedCluster cluster(options);
  cluster.KillAt(Seconds(30), {Role::kScheduler, 0});
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kDeadlineExceeded);
  EXPECT_THAT(cluster.node(1).end->reason(),
              AllOf(HasSubstr("the scheduler at sim://0/0 did not answer within 20 s"),
                    HasSubstr("cluster.scheduler_host")));
  for (size_t i = 1; i < cluster.nodes(); ++i) EXPECT_LT(cluster.node(i).ended, Seconds(22));
}

TEST(MembershipTest, ANodeThatDiesWhileGatheringLeavesItsPlaceToAnother) {
  // Also with a heartbeat deadline shorter than the usual pause between registrations, and to one
  // that is there before anybody knows of the death, whichever rank it wants.
  for (const auto& [deadline, start, wanted] :
       std::vector<std::tuple<double, double, int>>{{0.5, 15, 2},
                                                    {2, 15, 2},
                                                    {10, 15, 2},
                                                    {10, 2.71, 2},
                                                    {10, 2.71, -1},
                                                    {2, 3.5, 2},
                                                    {2, 3.5, -1}}) {
    SCOPED_TRACE(testing::Message() << deadline << " " << start << " " << wanted);
    SimulatedClusterOptions options = ShortTraining();
    options.job.mutable_communication()->set_heartbeat_interval_seconds(deadline / 5);
    options.job.mutable_communication()->set_heartbeat_deadline_seconds(deadline);
    SpecOf({Role::kServer, 0}, options).start = Seconds(18);
    NodeSpec successor = SpecOf({Role::kWorker, 2}, options);
    successor.start = Seconds(start);
    successor.id.rank = wanted;
    options.layout.nodes.push_back(successor);
    SimulatedCluster cluster(options);
    cluster.KillAt(Seconds(2.7), {Role::kWorker, 2});
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    EXPECT_EQ(cluster.node(7).id.ToString(), "worker 2");
  }
}

TEST(MembershipTest, ADeadNodeWithoutSuccessorIsMissing) {
  SimulatedClusterOptions options = ShortTraining();
  SpecOf({Role::kServer, 0}, options).start = Seconds(18);
  SimulatedCluster cluster(options);
  cluster.KillAt(Seconds(2.7), {Role::kWorker, 2});
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kDeadlineExceeded);
  EXPECT_THAT(cluster.node(0).end->reason(), HasSubstr("still missing worker 2 after 20 s"));
}

TEST(MembershipTest, TheDeathOfTheSchedulerWhileGatheringIsNoticed) {
  SimulatedClusterOptions options = ShortTraining();
  SpecOf({Role::kServer, 0}, options).start = Seconds(18);
  SimulatedCluster cluster(options);
  cluster.KillAt(Seconds(2.7), {Role::kScheduler, 0});
  cluster.KillAt(Seconds(17), {Role::kServer, 0});
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kPeerLost);
  EXPECT_THAT(cluster.node({Role::kWorker, 1}).end->reason(),
              HasSubstr("has been silent for 9 s while the job was gathering its nodes"));
  EXPECT_LT(cluster.node({Role::kWorker, 1}).ended, Seconds(12.7));
}

// The registrations have arrived, and nothing that is sent later does: nodes have never been
// answered, and the scheduler is beyond reach.
TEST(MembershipTest, ACutBeforeTheFirstAnswerIsNoticedLikeAnyOther) {
  SimulatedClusterOptions options = MixedTraining(2, std::chrono::milliseconds(1));
  SimulatedCluster* running = nullptr;
  options.network.faults.drop = 1;
  options.network.fault_filter = [&](const Envelope&) {
    return running->runtime().now() > std::chrono::microseconds(1);
  };
  SimulatedCluster cluster(options);
  running = &cluster;
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kPeerLost);
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    SCOPED_TRACE(cluster.node(i).id.ToString());
    EXPECT_LT(cluster.node(i).ended, Seconds(11));
  }
  EXPECT_THAT(cluster.node(1).end->reason(),
              AllOf(HasSubstr("the scheduler at sim://0/0"), HasSubstr("for 9 s")));
}

TEST(MembershipTest, ACutBeforeTheFirstAnswerThatHealsLosesNobody) {
  SimulatedClusterOptions options = MixedTraining(2, std::chrono::milliseconds(1));
  SimulatedCluster* running = nullptr;
  options.network.faults.drop = 1;
  options.network.fault_filter = [&](const Envelope&) {
    const Time now = running->runtime().now();
    return now > std::chrono::microseconds(1) && now < Seconds(8);
  };
  SimulatedCluster cluster(options);
  running = &cluster;
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
}

TEST(MembershipTest, WorkersThatDeclareDifferentModelsAreNamed) {
  SimulatedClusterOptions options = ShortTraining();
  auto other = std::make_shared<ModelSpec>(options.work.model);
  other->mutable_layers(0)->mutable_blobs(0)->set_lr_mult(3);
  SpecOf({Role::kWorker, 2}, options).model = other;
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kConfigError);
  EXPECT_THAT(cluster.node(1).end->reason(),
              AllOf(HasSubstr("declared another model than"), HasSubstr("worker 2 (machine2"),
                    HasSubstr("has other rates")));
}

TEST(MembershipTest, WorkersWithFilesThatDoNotFitTogetherDoNotTrain) {
  SimulatedClusterOptions options = ShortTraining();
  SpecOf({Role::kWorker, 2}, options).inputs.set_first_iteration(200);
  SimulatedCluster newer_snapshot(options);
  ASSERT_TRUE(newer_snapshot.Run(kForever));
  ExpectAllEnded(newer_snapshot, ExitCode::kDataError);
  EXPECT_THAT(newer_snapshot.node(1).end->reason(),
              AllOf(HasSubstr("worker 0 (machine0"), HasSubstr("has none, but worker 2 (machine2"),
                    HasSubstr("has that of iteration 200")));

  options = ShortTraining();
  for (NodeSpec& node : options.layout.nodes) {
    wire::TrainingData& data = *node.inputs.add_data();
    data.set_layer("digits");
    data.set_records(node.id.rank == 3 ? 60 : 240);
  }
  SimulatedCluster other_data(options);
  ASSERT_TRUE(other_data.Run(kForever));
  ExpectAllEnded(other_data, ExitCode::kDataError);
  EXPECT_THAT(other_data.node(1).end->reason(),
              AllOf(HasSubstr("layer \"digits\" reads 240 records on worker 0 (machine0"),
                    HasSubstr("and 60 on worker 3 (machine3")));
}

TEST(MembershipTest, AModelThatMakesNoSenseEndsTheJobWithItsMessage) {
  SimulatedClusterOptions options = ShortTraining();
  options.work.model.mutable_layers(2)->mutable_inner_product()->set_inputs(41);
  SimulatedCluster bad_layer(options);
  ASSERT_TRUE(bad_layer.Run(kForever));
  ExpectAllEnded(bad_layer, ExitCode::kConfigError);
  EXPECT_THAT(bad_layer.node(1).end->reason(),
              HasSubstr("layer fc: declared as an inner product of 41 inputs and 30 outputs"));

  options = ShortTraining();
  options.work.model.mutable_update_rule()->set_lr_policy("sometimes");
  SimulatedCluster bad_rule(options);
  ASSERT_TRUE(bad_rule.Run(kForever));
  ExpectAllEnded(bad_rule, ExitCode::kConfigError);
  EXPECT_THAT(bad_rule.node(1).end->reason(), HasSubstr("lr_policy is \"sometimes\""));
}

TEST(MembershipTest, ANodeThatNeverGetsReadyIsNamed) {
  SimulatedClusterOptions options = ShortTraining();
  options.network.faults.drop = 1;
  options.network.fault_filter = [](const Envelope& envelope) {
    return envelope.kind == MessageKind::kReady && envelope.from.node.ToString() == "server 1";
  };
  SimulatedCluster not_ready(options);
  ASSERT_TRUE(not_ready.Run(kForever));
  ExpectAllEnded(not_ready, ExitCode::kDeadlineExceeded);
  EXPECT_THAT(not_ready.node(1).end->reason(),
              HasSubstr("server 1 (machine1, process 2) did not get ready to train after 20 s"));

  options.network.fault_filter = [](const Envelope& envelope) {
    return envelope.kind == MessageKind::kDeclareModel && envelope.from.node.rank == 3;
  };
  SimulatedCluster silent(options);
  ASSERT_TRUE(silent.Run(kForever));
  EXPECT_THAT(silent.node(1).end->reason(),
              HasSubstr("worker 3 (machine3, process 6) did not declare the model after 20 s"));
}

}  // namespace
}  // namespace poseidon
