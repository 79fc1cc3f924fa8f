#include "scheduler/rank_assignment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace poseidon {
namespace {

using testing::ElementsAre;

TEST(RankAssignmentTest, PairsNodesOfOneHost) {
  const AssignedRanks ranks = AssignRanks({{"b"}, {"c"}, {"a"}}, {{"a"}, {"b"}, {"c"}});
  EXPECT_THAT(ranks.workers, ElementsAre(0, 1, 2));
  EXPECT_THAT(ranks.servers, ElementsAre(2, 0, 1));
}

TEST(RankAssignmentTest, OnOneHostEarlierNodesGetLowerRanks) {
  const AssignedRanks ranks = AssignRanks({{"a"}, {"a"}, {"a"}}, {{"a"}, {"a"}});
  EXPECT_THAT(ranks.workers, ElementsAre(0, 1, 2));
  EXPECT_THAT(ranks.servers, ElementsAre(0, 1));
}

TEST(RankAssignmentTest, WishesComeTrueAndTheirPartnersFollow) {
  const AssignedRanks ranks = AssignRanks({{"a"}, {"b", 0}, {"c"}}, {{"c", 2}, {"b"}, {"a"}});
  EXPECT_THAT(ranks.workers, ElementsAre(1, 0, 2));
  EXPECT_THAT(ranks.servers, ElementsAre(2, 0, 1));
}

TEST(RankAssignmentTest, WorkersOnHostsWithoutServersLeaveRoomForTheOthers) {
  // Two servers, four workers: only ranks 0 and 1 can be pairs, whoever comes first.
  const AssignedRanks ranks = AssignRanks({{"c"}, {"d"}, {"b"}, {"a"}}, {{"a"}, {"b"}});
  EXPECT_THAT(ranks.workers, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(ranks.servers, ElementsAre(1, 0));
}

TEST(RankAssignmentTest, WhoWantsARankOfAnotherHostBreaksOnlyThatPair) {
  const AssignedRanks ranks = AssignRanks({{"a", 1}, {"b", 0}}, {{"a", 0}, {"b"}});
  EXPECT_THAT(ranks.workers, ElementsAre(1, 0));
  EXPECT_THAT(ranks.servers, ElementsAre(0, 1));
}

// Every machine has as many workers as servers, as planning assumes: then all are paired, in
// whatever order they come.
TEST(RankAssignmentTest, PairsAllWhereEveryHostHasAsManyOfBoth) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<RankWish> workers;
    for (unsigned host = 0; host < 1 + seed % 5; ++host) {
      workers.insert(workers.end(), 1 + random() % 3, {"host" + std::to_string(host)});
    }
    std::vector<RankWish> servers = workers;
    std::shuffle(workers.begin(), workers.end(), random);
    std::shuffle(servers.begin(), servers.end(), random);
    const AssignedRanks ranks = AssignRanks(workers, servers);
    std::vector<std::string> host_of_rank(workers.size());
    for (size_t i = 0; i < workers.size(); ++i) host_of_rank[ranks.workers[i]] = workers[i].host;
    for (size_t i = 0; i < servers.size(); ++i) {
      EXPECT_EQ(host_of_rank[ranks.servers[i]], servers[i].host) << "seed " << seed;
    }
    std::vector<int> all(workers.size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_THAT(ranks.workers, testing::UnorderedElementsAreArray(all)) << "seed " << seed;
    EXPECT_THAT(ranks.servers, testing::UnorderedElementsAreArray(all)) << "seed " << seed;
  }
}

}  // namespace
}  // namespace poseidon
