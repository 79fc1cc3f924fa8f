#include "scheduler/recovery_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

wire::Holdings Complete(int64_t iteration) {
  wire::Holdings holdings;
  holdings.set_complete(true);
  holdings.set_iteration(iteration);
  return holdings;
}

TEST(RecoveryRound, GoesBackToTheOldestThatIsWhole) {
  const Cut cut = FindCut({{0, Complete(8)}, {2, Complete(7)}, {5, Complete(8)}});
  EXPECT_EQ(cut.iteration, 7);
  EXPECT_THAT(cut.holders, ElementsAre(0, 2, 5));
}

TEST(RecoveryRound, WhoLacksSomethingDoesNotCount) {
  const Cut cut = FindCut({{0, wire::Holdings()}, {1, Complete(9)}});
  EXPECT_EQ(cut.iteration, 9);
  EXPECT_THAT(cut.holders, ElementsAre(1));
  EXPECT_THAT(FindCut({{0, wire::Holdings()}}).holders, IsEmpty());
  EXPECT_THAT(FindCut({}).holders, IsEmpty());
}

TEST(RecoveryRound, AnswersToAnEarlierHoldDoNotCount) {
  RecoveryRound round;
  EXPECT_FALSE(round.active());
  round.Begin("no heartbeat for 9 s", Seconds(9), Time(Seconds(20)));
  round.BeginHold();
  EXPECT_EQ(round.hold(), 1);
  round.Add(0, Complete(3));
  EXPECT_TRUE(round.Has(0));
  round.BeginHold();
  EXPECT_EQ(round.hold(), 2);
  EXPECT_FALSE(round.Has(0));
  EXPECT_THAT(round.FindCut().holders, IsEmpty());
}

TEST(RecoveryRound, TellsWhatBeganItAndWhoWasLost) {
  RecoveryRound round;
  wire::Node first;
  first.set_rank(1);
  wire::Node second;
  second.set_rank(2);
  round.Begin("no heartbeat for 9 s", Seconds(9), Time(Seconds(20)));
  round.Lose(first);
  round.Begin("its process has ended", {}, Time(Seconds(21)));
  round.Lose(second);
  const wire::Recovered recovered = round.End(17, 19, Time(Seconds(24)));
  EXPECT_FALSE(round.active());
  EXPECT_EQ(recovered.cause(), "no heartbeat for 9 s");
  EXPECT_EQ(recovered.lost_size(), 2);
  EXPECT_EQ(recovered.iteration(), 17);
  EXPECT_EQ(recovered.reached(), 19);
  EXPECT_DOUBLE_EQ(recovered.detected_seconds(), 9);
  EXPECT_DOUBLE_EQ(recovered.restored_seconds(), 4);
}

}  // namespace
}  // namespace poseidon
