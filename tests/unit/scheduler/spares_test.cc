#include "scheduler/spares.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

wire::Register Request(Role role, uint64_t incarnation, int rank = -1) {
  wire::Register request;
  request.mutable_node()->set_role(static_cast<uint32_t>(role));
  request.mutable_node()->set_rank(rank);
  request.set_incarnation(incarnation);
  return request;
}

Recovery TwoWorkersAndAServer() {
  Recovery recovery;
  recovery.set_spare_workers(2);
  recovery.set_spare_servers(1);
  return recovery;
}

TEST(SparesTest, KeepsAsManyOfARoleAsTheConfigSays) {
  Spares spares(TwoWorkersAndAServer());
  EXPECT_TRUE(spares.Keep(Request(Role::kWorker, 1), {}));
  EXPECT_TRUE(spares.Keep(Request(Role::kServer, 2), {}));
  EXPECT_FALSE(spares.Keep(Request(Role::kServer, 3), {}));
  EXPECT_TRUE(spares.Keep(Request(Role::kWorker, 4), {}));
  EXPECT_FALSE(spares.Keep(Request(Role::kWorker, 5), {}));
  EXPECT_EQ(spares.all().size(), 3u);
}

TEST(SparesTest, NotOneThatWantsACertainRank) {
  Spares spares(TwoWorkersAndAServer());
  EXPECT_FALSE(spares.Keep(Request(Role::kWorker, 1, 0), {}));
}

TEST(SparesTest, HasOneAddressThatNoOtherHas) {
  Spares spares(TwoWorkersAndAServer());
  const auto first = spares.Keep(Request(Role::kWorker, 1), {});
  const auto second = spares.Keep(Request(Role::kWorker, 2), {});
  EXPECT_EQ(spares.Keep(Request(Role::kWorker, 1), {}), first);
  EXPECT_NE(first, second);
  EXPECT_LT(first->node.rank, -kGuests);
  // Nor one that comes when another is gone.
  ASSERT_TRUE(spares.Take(Role::kWorker));
  EXPECT_NE(spares.Keep(Request(Role::kWorker, 3), {}), second);
}

TEST(SparesTest, WhoHasWaitedLongestIsTakenFirst) {
  Spares spares(TwoWorkersAndAServer());
  for (const uint64_t incarnation : {7, 5}) spares.Keep(Request(Role::kWorker, incarnation), {});
  EXPECT_FALSE(spares.Take(Role::kServer));
  EXPECT_EQ(spares.Take(Role::kWorker)->incarnation(), 7u);
  EXPECT_EQ(spares.Take(Role::kWorker)->incarnation(), 5u);
  EXPECT_FALSE(spares.Take(Role::kWorker));
}

TEST(SparesTest, ForgetsOneThatHasARankNow) {
  Spares spares(TwoWorkersAndAServer());
  spares.Keep(Request(Role::kWorker, 1), {});
  EXPECT_TRUE(spares.Has(1));
  spares.Forget(1);
  EXPECT_FALSE(spares.Has(1));
  EXPECT_FALSE(spares.Take(Role::kWorker));
}

TEST(SparesTest, ForgetsWhoIsSilent) {
  Spares spares(TwoWorkersAndAServer());
  spares.Keep(Request(Role::kWorker, 1), {});
  spares.Keep(Request(Role::kWorker, 2), {});
  spares.Keep(Request(Role::kWorker, 2), Time(Seconds(4)));
  EXPECT_EQ(spares.DropSilent(Time(Seconds(5)), Seconds(3)).size(), 1u);
  ASSERT_EQ(spares.all().size(), 1u);
  EXPECT_EQ(spares.all().front().request.incarnation(), 2u);
}

}  // namespace
}  // namespace poseidon
