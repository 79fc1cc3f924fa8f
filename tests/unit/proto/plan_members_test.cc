#include "proto/plan_members.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace poseidon {
namespace {

using testing::ElementsAre;

Plan PlanOf(int workers, int servers) {
  Plan plan;
  plan.set_workers(workers);
  plan.set_servers(servers);
  return plan;
}

std::vector<std::pair<int64_t, int>> TenuresOf(const Plan& plan) {
  std::vector<std::pair<int64_t, int>> tenures;
  for (const Tenure& tenure : plan.tenures()) {
    tenures.emplace_back(tenure.start_iteration(), tenure.workers());
  }
  return tenures;
}

TEST(PlanMembersTest, RankAndPlaceAreTheSameWhereAllTakePart) {
  Plan plan = PlanOf(3, 2);
  SetMembers({0, 1, 2}, {0, 1}, plan);
  EXPECT_EQ(plan.worker_ranks_size(), 0);
  EXPECT_EQ(RankOfWorker(plan, 2), 2);
  EXPECT_EQ(PlaceOfWorker(plan, 2), 2);
  EXPECT_EQ(PlaceOfWorker(plan, 3), -1);
  EXPECT_EQ(PlaceOfWorker(plan, -1), -1);
  EXPECT_EQ(PlaceOfServer(plan, 1), 1);
}

TEST(PlanMembersTest, WhoIsNoHolderGetsWhatThePlanBeginsWith) {
  Plan plan = PlanOf(4, 1);
  EXPECT_THAT(PlacesBesideHolders(plan), ElementsAre());
  plan.add_holders(3);
  plan.add_holders(1);
  EXPECT_THAT(PlacesBesideHolders(plan), ElementsAre(0, 2));
  plan.add_holders(0);
  plan.add_holders(2);
  EXPECT_THAT(PlacesBesideHolders(plan), ElementsAre());
}

TEST(PlanMembersTest, RanksAreThoseThatWereSet) {
  Plan plan = PlanOf(3, 2);
  EXPECT_THAT(RanksOfWorkers(plan), ElementsAre(0, 1, 2));
  EXPECT_THAT(RanksOfServers(plan), ElementsAre(0, 1));
  SetMembers({0, 2, 7}, {1, 2}, plan);
  EXPECT_THAT(RanksOfWorkers(plan), ElementsAre(0, 2, 7));
  EXPECT_THAT(RanksOfServers(plan), ElementsAre(1, 2));
}

TEST(PlanMembersTest, PlacesCountThoseThatTakePart) {
  Plan plan = PlanOf(3, 1);
  SetMembers({0, 2, 3}, {1}, plan);
  EXPECT_EQ(RankOfWorker(plan, 1), 2);
  EXPECT_EQ(PlaceOfWorker(plan, 3), 2);
  EXPECT_EQ(PlaceOfWorker(plan, 1), -1);
  EXPECT_EQ(RankOfServer(plan, 0), 1);
  EXPECT_EQ(PlaceOfServer(plan, 1), 0);
  EXPECT_EQ(PlaceOfServer(plan, 0), -1);
}

TEST(PlanMembersTest, TenuresFollowEachOther) {
  const Plan four = PlanOf(4, 1);
  Plan three = PlanOf(3, 1);
  ContinueTenures(four, 10, three);
  EXPECT_THAT(TenuresOf(three), ElementsAre(std::pair(0, 4), std::pair(10, 3)));
  Plan two = PlanOf(2, 1);
  ContinueTenures(three, 25, two);
  EXPECT_THAT(TenuresOf(two), ElementsAre(std::pair(0, 4), std::pair(10, 3), std::pair(25, 2)));
  // Lost before any iteration of the tenure was done.
  ContinueTenures(three, 10, two);
  EXPECT_THAT(TenuresOf(two), ElementsAre(std::pair(0, 4), std::pair(10, 2)));
  ContinueTenures(three, 0, two);
  EXPECT_THAT(TenuresOf(two), ElementsAre(std::pair(0, 2)));
  // Servers only.
  Plan same = PlanOf(3, 2);
  ContinueTenures(three, 30, same);
  EXPECT_THAT(TenuresOf(same), ElementsAre(std::pair(0, 4), std::pair(10, 3)));
}

}  // namespace
}  // namespace poseidon
