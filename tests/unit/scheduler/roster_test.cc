#include "scheduler/roster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/membership/member.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr uint64_t kFingerprint = 42;
constexpr const char* kBuild = "1.2.0+aa";

Job TestJob() {
  Job job;
  job.mutable_cluster()->set_workers(3);
  job.mutable_cluster()->set_servers(2);
  return job;
}

wire::Register Request(Role role, int rank, uint64_t incarnation) {
  wire::Register request;
  request.mutable_node()->set_role(static_cast<uint32_t>(role));
  request.mutable_node()->set_rank(rank);
  request.mutable_node()->set_host("node" + std::to_string(incarnation));
  request.mutable_node()->set_pid(7);
  for (int lane = 0; lane < 3; ++lane) request.mutable_node()->add_endpoints("somewhere");
  request.set_incarnation(incarnation);
  request.set_job_fingerprint(kFingerprint);
  return request;
}

// 3 workers, 2 servers, three endpoints each.
class RosterTest : public testing::Test {
 protected:
  // The rank given, or -1.
  int Rank(Role role, int wanted, uint64_t incarnation, Time now = {}) {
    const Roster::Answer answer = roster_.Register(Request(role, wanted, incarnation), now);
    return answer.admitted ? answer.admitted->rank() : -1;
  }

  Roster roster_{TestJob(), kFingerprint, kBuild, 3};
};

// As on a machine that has its own name at 127.0.1.1, where the scheduler is, too.
TEST_F(RosterTest, NamesThoseWhomOtherMachinesCanNotReach) {
  const auto add = [&](Role role, int rank, const std::string& host) {
    const auto incarnation = static_cast<uint64_t>(rank) + 1;
    wire::Register request = Request(role, rank, incarnation);
    request.mutable_node()->set_host(host);
    roster_.Register(request, {});
  };
  EXPECT_EQ(roster_.Unreachable(), "");
  add(Role::kServer, 0, "127.0.0.1");
  add(Role::kWorker, 0, "::1");
  EXPECT_EQ(roster_.Unreachable(), "") << "all are on one machine";
  add(Role::kWorker, 1, "10.0.0.2");
  EXPECT_THAT(roster_.Unreachable(),
              testing::StartsWith("nodes on other machines do not reach server 0 (127.0.0.1, "
                                  "process 7), worker 0 (::1, process 7) at a loopback address; "
                                  "start what is on that machine with --host=ADDRESS, "));
}

TEST_F(RosterTest, GivesWishesAndElseTheLowestFreeRank) {
  EXPECT_EQ(Rank(Role::kWorker, 1, 1), 1);
  EXPECT_EQ(Rank(Role::kWorker, -1, 2), 0);
  EXPECT_EQ(Rank(Role::kServer, -1, 3), 0);
  EXPECT_EQ(Rank(Role::kWorker, -1, 4), 2);
  EXPECT_FALSE(roster_.complete());
  EXPECT_EQ(roster_.Missing(), "server 1");
  EXPECT_EQ(Rank(Role::kServer, 1, 5), 1);
  EXPECT_TRUE(roster_.complete());
  EXPECT_EQ(roster_.Missing(), "");
  std::vector<std::string> nodes;
  for (const wire::Node& node : roster_.nodes()) nodes.push_back(Describe(node));
  EXPECT_THAT(nodes,
              testing::ElementsAre("server 0 (node3, process 7)", "server 1 (node5, process 7)",
                                   "worker 0 (node2, process 7)", "worker 1 (node1, process 7)",
                                   "worker 2 (node4, process 7)"));
}

TEST_F(RosterTest, GivesRanksByHostWhenAllAreThere) {
  const auto join = [&](Role role, int wanted, uint64_t incarnation, const std::string& host) {
    wire::Register request = Request(role, wanted, incarnation);
    request.mutable_node()->set_host(host);
    return roster_.Register(request, {});
  };
  EXPECT_TRUE(roster_.AssignRanks().empty());
  EXPECT_FALSE(join(Role::kWorker, -1, 1, "a").has_rank);
  EXPECT_FALSE(join(Role::kWorker, -1, 2, "b").has_rank);
  EXPECT_TRUE(join(Role::kWorker, 2, 3, "c").has_rank);
  EXPECT_FALSE(join(Role::kServer, -1, 4, "b").has_rank);
  EXPECT_TRUE(roster_.AssignRanks().empty());
  EXPECT_TRUE(join(Role::kServer, 1, 5, "a").has_rank);
  std::vector<std::string> assigned;
  for (const wire::Node& node : roster_.AssignRanks()) assigned.push_back(Describe(node));
  EXPECT_THAT(assigned, testing::ElementsAre("worker 1 (a, process 7)", "worker 0 (b, process 7)",
                                             "server 0 (b, process 7)"));
  // Whoever asks again is told what it has for good.
  const Roster::Answer again = join(Role::kWorker, -1, 1, "a");
  EXPECT_TRUE(again.has_rank);
  EXPECT_EQ(again.admitted->rank(), 1);
  EXPECT_TRUE(roster_.AssignRanks().empty());
}

TEST_F(RosterTest, ARepetitionKeepsItsRankAndIsNoNews) {
  EXPECT_TRUE(roster_.Register(Request(Role::kWorker, -1, 1), {}).news);
  EXPECT_EQ(Rank(Role::kWorker, -1, 2), 1);
  const Roster::Answer again = roster_.Register(Request(Role::kWorker, -1, 1), {});
  EXPECT_FALSE(again.news);
  ASSERT_TRUE(again.admitted);
  EXPECT_EQ(again.admitted->rank(), 0);
}

TEST_F(RosterTest, SaysWhyItRefuses) {
  Rank(Role::kWorker, 1, 1);
  const auto refusal = [&](const wire::Register& request) {
    const Roster::Answer answer = roster_.Register(request, {});
    EXPECT_FALSE(answer.admitted);
    return answer.refusal;
  };
  EXPECT_EQ(
      refusal(Request(Role::kWorker, 1, 2)),
      "rank 1 is already taken by worker 1 (node1, process 7); give each worker a rank of its own");
  EXPECT_EQ(refusal(Request(Role::kServer, 2, 2)),
            "there is no server rank 2: the config has 2 server(s), ranks count from 0");
  EXPECT_EQ(refusal(Request(Role::kScheduler, 0, 2)), "only servers and workers can join a job");
  wire::Register other_job = Request(Role::kServer, -1, 2);
  other_job.set_job_fingerprint(41);
  EXPECT_EQ(refusal(other_job),
            "its job config differs from the scheduler's; every node of a job must be started from "
            "the same file");
  *other_job.mutable_job() = TestJob();
  other_job.mutable_job()->mutable_communication()->set_lanes(2);
  EXPECT_EQ(refusal(other_job),
            "its job config differs from the scheduler's: communication is { lanes: 2 }, the "
            "scheduler's is not set; every node of a job must be started from the same file");
  other_job.mutable_job()->clear_communication();
  other_job.mutable_job()->mutable_cluster()->set_workers(4);
  other_job.mutable_job()->mutable_cluster()->set_flops(1);
  EXPECT_THAT(refusal(other_job),
              HasSubstr(": cluster.workers is 4, the scheduler's is 3; and 1 more field;"));
  // What losers of a race for a port are told.
  other_job.mutable_job()->set_run(7);
  other_job.mutable_job()->set_name("two\n");
  EXPECT_THAT(refusal(other_job),
              HasSubstr("it was started for another run (name: \"two\\n\") than "
                        "the scheduler (name: \"job\"), which has the same "
                        "cluster.scheduler_port; give each job a port"));
  wire::Register other_version = Request(Role::kServer, -1, 2);
  other_version.mutable_node()->mutable_endpoints()->RemoveLast();
  EXPECT_THAT(refusal(other_version),
              HasSubstr("it offers 0 data lane(s), and the job's plan has 1"));
  Rank(Role::kWorker, -1, 3);
  Rank(Role::kWorker, -1, 4);
  EXPECT_EQ(refusal(Request(Role::kWorker, -1, 5)),
            "the config has 3 worker(s) and all of them are here already");
}

TEST_F(RosterTest, ANodeOfAnotherBuildIsRefused) {
  wire::Register request = Request(Role::kWorker, 1, 1);
  const auto refusal = [&] { return roster_.Register(request, {}).refusal; };
  request.set_build("1.2.0+bb");
  EXPECT_EQ(refusal(),
            "it is of build 1.2.0+bb, the scheduler of 1.2.0+aa; install the same build on every "
            "machine, and start this process again");
  // What it reads its config as may differ with it.
  request.set_job_fingerprint(41);
  *request.mutable_job() = TestJob();
  request.mutable_job()->set_name("lenet");
  EXPECT_THAT(refusal(), HasSubstr("it is of build 1.2.0+bb"));
  // Of another run's it is of no interest.
  request.mutable_job()->set_run(7);
  EXPECT_THAT(refusal(), HasSubstr("it was started for another run"));
  request = Request(Role::kWorker, 1, 1);
  request.set_build(std::string(1000, 'b') + "\n");
  EXPECT_THAT(refusal(), HasSubstr("it is of build " + std::string(80, 'b') + ", the scheduler"));
  request.set_build("\033[2J");
  EXPECT_THAT(refusal(), HasSubstr("it is of build \\x1b[2J, the scheduler"));
  // Its place stays free for one of this build.
  request.set_build(kBuild);
  EXPECT_EQ(roster_.Register(request, {}).admitted->rank(), 1);
  // Nor does it wait for the place of one that is here.
  wire::Register rival = Request(Role::kWorker, 1, 2);
  EXPECT_TRUE(roster_.IsTaken(rival));
  rival.set_build("1.2.0+bb");
  EXPECT_FALSE(roster_.IsTaken(rival));
}

TEST(RosterOfNoBuildTest, TakesAnyBuild) {
  Roster roster(TestJob(), kFingerprint, "", 3);
  wire::Register request = Request(Role::kWorker, 1, 1);
  request.set_build("1.2.0+bb");
  EXPECT_TRUE(roster.Register(request, {}).admitted);
}

TEST_F(RosterTest, ForgetsTheSilent) {
  Rank(Role::kWorker, -1, 1, Seconds(0));
  Rank(Role::kWorker, -1, 2, Seconds(0));
  Rank(Role::kWorker, -1, 2, Seconds(5));
  const std::vector<wire::Node> dropped = roster_.DropSilent(Seconds(9), Seconds(8), {});
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(Describe(dropped[0]), "worker 0 (node1, process 7)");
  EXPECT_EQ(roster_.Missing(), "2 workers (ranks 0, 2) and 2 servers (ranks 0, 1)");
  // Its place is free, and if it comes back it takes what is left.
  EXPECT_EQ(Rank(Role::kWorker, -1, 3), 0);
  EXPECT_EQ(Rank(Role::kWorker, -1, 1), 2);
}

TEST_F(RosterTest, WhoWantsATakenRankWaitsForItsHoldersWord) {
  Rank(Role::kWorker, 0, 1, Seconds(0));
  Rank(Role::kWorker, 2, 2, Seconds(0));
  const auto waits = [&](int rank, uint64_t incarnation, double now) {
    return roster_.HolderMayBeGone(Request(Role::kWorker, rank, incarnation), Seconds(now));
  };
  EXPECT_FALSE(waits(1, 3, 1)) << "the rank is free";
  EXPECT_FALSE(waits(3, 3, 1)) << "there is no such rank";
  EXPECT_FALSE(waits(0, 1, 1)) << "it is its own";
  EXPECT_TRUE(waits(0, 3, 1));
  EXPECT_TRUE(waits(0, 3, 2));
  Rank(Role::kWorker, 0, 1, Seconds(2.5));
  EXPECT_FALSE(waits(0, 3, 3)) << "its holder lives";
  // What was heard before counts for nobody who asks later.
  EXPECT_TRUE(waits(0, 4, 4));
  roster_.DropSilent(Seconds(9), Seconds(6), {{Role::kWorker, 2}});
  EXPECT_FALSE(waits(0, 4, 9)) << "its holder is dropped";
  EXPECT_EQ(Rank(Role::kWorker, 0, 4, Seconds(9)), 0);
}

TEST_F(RosterTest, WhoWantsAnyRankWaitsForTheWordOfAll) {
  Rank(Role::kServer, -1, 1, Seconds(0));
  Rank(Role::kServer, -1, 2, Seconds(0));
  const auto waits = [&](double now) {
    return roster_.HolderMayBeGone(Request(Role::kServer, -1, 3), Seconds(now));
  };
  EXPECT_TRUE(waits(1));
  Rank(Role::kServer, -1, 1, Seconds(2));
  EXPECT_TRUE(waits(2));
  Rank(Role::kServer, -1, 2, Seconds(3));
  EXPECT_FALSE(waits(3));
}

TEST_F(RosterTest, NoMoreWaitForAWordThanThereAreRanks) {
  Rank(Role::kWorker, 0, 1, Seconds(0));
  const auto waits = [&](uint64_t incarnation, double now) {
    return roster_.HolderMayBeGone(Request(Role::kWorker, 0, incarnation), Seconds(now));
  };
  for (uint64_t rival = 10; rival < 15; ++rival) EXPECT_TRUE(waits(rival, 1));
  EXPECT_FALSE(waits(15, 1));
  EXPECT_TRUE(waits(10, 1));
  roster_.DropSilent(Seconds(10), Seconds(20), {});
  EXPECT_FALSE(waits(15, 10));
  // Who has not asked again is forgotten.
  roster_.DropSilent(Seconds(42), Seconds(20), {{Role::kWorker, 0}});
  EXPECT_TRUE(waits(15, 42));
}

TEST_F(RosterTest, ALostNodesRankIsFreeForAnotherProcessButNotForItself) {
  EXPECT_EQ(Rank(Role::kWorker, 1, 1), 1);
  EXPECT_TRUE(roster_.IsTaken(Request(Role::kWorker, 1, 2)));
  EXPECT_EQ(roster_.Find(1), (NodeId{Role::kWorker, 1}));
  roster_.Forget({Role::kWorker, 1});
  EXPECT_FALSE(roster_.Find(1));
  EXPECT_TRUE(roster_.WasForgotten(1));
  EXPECT_FALSE(roster_.WasForgotten(2));
  EXPECT_FALSE(roster_.IsTaken(Request(Role::kWorker, 1, 2)));
  EXPECT_EQ(Rank(Role::kWorker, 1, 2), 1);
}

TEST_F(RosterTest, NodesOfAnEarlierSchedulerKeepTheirRanks) {
  wire::Node node = Request(Role::kWorker, 2, 7).node();
  roster_.Restore(node, 7, Seconds(1));
  roster_.RestoreForgotten(8);
  EXPECT_EQ(roster_.IncarnationOf({Role::kWorker, 2}), 7u);
  const Roster::Answer answer = roster_.Register(Request(Role::kWorker, -1, 7), Seconds(2));
  ASSERT_TRUE(answer.admitted);
  EXPECT_EQ(answer.admitted->rank(), 2);
  EXPECT_TRUE(answer.has_rank);
  EXPECT_FALSE(answer.news);
  EXPECT_TRUE(roster_.IsTaken(Request(Role::kWorker, 2, 9)));
  EXPECT_TRUE(roster_.WasForgotten(8));
}

TEST_F(RosterTest, VacatedRanksAreNotWanted) {
  EXPECT_EQ(Rank(Role::kWorker, 0, 1), 0);
  EXPECT_EQ(Rank(Role::kWorker, 2, 2), 2);
  roster_.Vacate({Role::kWorker, 1});
  EXPECT_EQ(roster_.Missing(), "2 servers (ranks 0, 1)");
  roster_.Vacate({Role::kServer, 0});
  EXPECT_FALSE(roster_.complete());
  EXPECT_EQ(Rank(Role::kServer, -1, 3), 1);
  EXPECT_TRUE(roster_.complete());
  // Its place is its rank: the lowest that is wanted.
  const std::vector<wire::Node> assigned = roster_.AssignRanks();
  ASSERT_EQ(assigned.size(), 1u);
  EXPECT_EQ(IdOf(assigned[0]), (NodeId{Role::kServer, 1}));
  const wire::Register late = Request(Role::kWorker, 1, 9);
  EXPECT_FALSE(roster_.IsTaken(late));
  EXPECT_THAT(roster_.Register(late, {}).refusal,
              HasSubstr("the job has lost worker 1 and goes on without (recovery: SHRINK)"));
}

TEST_F(RosterTest, AnOpenJobHasRanksForThoseThatComeLater) {
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(Rank(Role::kWorker, rank, 1 + rank), rank);
  for (int rank = 0; rank < 2; ++rank) EXPECT_EQ(Rank(Role::kServer, rank, 8 + rank), rank);
  roster_.AssignRanks();
  roster_.Forget({Role::kWorker, 1});
  roster_.Vacate({Role::kWorker, 1});
  roster_.OpenTo(4);
  EXPECT_TRUE(roster_.complete());
  EXPECT_EQ(roster_.Missing(), "");
  // One that has gone, then a new one; then there is none.
  EXPECT_EQ(Rank(Role::kWorker, -1, 20, Seconds(1)), 1);
  EXPECT_EQ(Rank(Role::kWorker, -1, 21, Seconds(20)), 3);
  EXPECT_EQ(Rank(Role::kWorker, -1, 22, Seconds(20)), -1);
  EXPECT_TRUE(roster_.complete());
  // Who falls silent on the way is not missed.
  const std::set<NodeId> members = {
      {Role::kWorker, 0}, {Role::kWorker, 2}, {Role::kServer, 0}, {Role::kServer, 1}};
  EXPECT_EQ(roster_.DropSilent(Seconds(21), Seconds(8), members).size(), 1u);
  EXPECT_EQ(roster_.Missing(), "");
  EXPECT_TRUE(roster_.vacated().contains({Role::kWorker, 1}));
  EXPECT_EQ(Rank(Role::kWorker, 1, 23, Seconds(21)), 1);
  // Once the others know of it, it is.
  roster_.AssignRanks();
  roster_.Forget({Role::kWorker, 3});
  EXPECT_EQ(roster_.Missing(), "worker 3");
}

TEST_F(RosterTest, MembersNeedNotRepeatTheirRegistration) {
  EXPECT_EQ(Rank(Role::kWorker, 0, 1), 0);
  EXPECT_EQ(Rank(Role::kWorker, 1, 2), 1);
  const auto dropped = roster_.DropSilent(Time(Seconds(100)), Seconds(9), {{Role::kWorker, 0}});
  ASSERT_EQ(dropped.size(), 1);
  EXPECT_EQ(dropped[0].rank(), 1);
  EXPECT_EQ(roster_.Find(1), (NodeId{Role::kWorker, 0}));
}

}  // namespace
}  // namespace poseidon
