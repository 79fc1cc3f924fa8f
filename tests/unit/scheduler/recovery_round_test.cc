#include "scheduler/recovery_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

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
  const Cut cut = FindCut({{0, Complete(8)}, {2, Complete(7)}, {5, Complete(8)}}, {}, {});
  EXPECT_EQ(cut.iteration, 7);
  EXPECT_THAT(cut.holders, ElementsAre(0, 2, 5));
}

TEST(RecoveryRound, WhoLacksSomethingDoesNotCount) {
  const Cut cut = FindCut({{0, wire::Holdings()}, {1, Complete(9)}}, {}, {});
  EXPECT_EQ(cut.iteration, 9);
  EXPECT_THAT(cut.holders, ElementsAre(1));
  EXPECT_THAT(FindCut({{0, wire::Holdings()}}, {}, {}).holders, IsEmpty());
  EXPECT_THAT(FindCut({}, {}, {}).holders, IsEmpty());
}

// Three chunks: of servers 0 and 1, 1 and 2, 2 and 0.
Plan PlanWithBackups() {
  Plan plan;
  plan.set_servers(3);
  BucketPlan& bucket = *plan.add_buckets();
  bucket.set_scheme(PS);
  for (int server = 0; server < 3; ++server) {
    Chunk& chunk = *bucket.add_chunks();
    chunk.set_server(server);
    chunk.set_backup((server + 1) % 3);
  }
  return plan;
}

wire::Holdings Chunks(const std::vector<std::pair<int, int64_t>>& chunks) {
  wire::Holdings holdings;
  for (const auto& [chunk, iteration] : chunks) {
    wire::HeldChunk& held = *holdings.add_chunks();
    held.set_chunk(chunk);
    held.set_iteration(iteration);
  }
  return holdings;
}

// A worker that has all values, but updates nothing itself.
wire::Holdings CompleteWithout() {
  wire::Holdings holdings;
  holdings.set_complete(true);
  return holdings;
}

TEST(RecoveryRound, TheOldestOfServersCountsWhereTheyUpdate) {
  const Cut cut = FindCut(
      {{0, CompleteWithout()}},
      {{0, Chunks({{0, 5}, {2, 6}})}, {1, Chunks({{0, 6}, {1, 6}})}, {2, Chunks({{1, 6}, {2, 6}})}},
      PlanWithBackups());
  EXPECT_EQ(cut.iteration, 5);
  EXPECT_THAT(cut.holders, ElementsAre(0));
  EXPECT_THAT(cut.gaps, IsEmpty());
  EXPECT_FALSE(cut.lost_chunk);
}

TEST(RecoveryRound, WhatALostServerKeptComesFromTheOtherThatKeepsIt) {
  const Cut cut =
      FindCut({{0, CompleteWithout()}},
              {{0, Chunks({{0, 5}, {2, 5}})}, {2, Chunks({{1, 5}, {2, 5}})}}, PlanWithBackups());
  ASSERT_EQ(cut.gaps.size(), 2u);
  EXPECT_EQ(cut.gaps[0].chunk, 0);
  EXPECT_EQ(cut.gaps[0].recipient, Chunk::BACKUP);
  EXPECT_EQ(cut.gaps[1].chunk, 1);
  EXPECT_EQ(cut.gaps[1].recipient, Chunk::OWNER);
  EXPECT_FALSE(cut.lost_chunk);
}

TEST(RecoveryRound, AChunkWhoseServersAreBothLostIsLost) {
  const std::map<int, wire::Holdings> left{{2, Chunks({{1, 5}, {2, 5}})}};
  EXPECT_TRUE(FindCut({{0, CompleteWithout()}}, left, PlanWithBackups()).lost_chunk);
}

TEST(RecoveryRound, ChunksOfAnotherLayoutDoNotCount) {
  Plan plan = PlanWithBackups();
  plan.set_layout(4);
  const wire::Holdings all = Chunks({{0, 5}, {1, 5}, {2, 5}});
  EXPECT_TRUE(FindCut({{0, CompleteWithout()}}, {{0, all}, {1, all}, {2, all}}, plan).lost_chunk);
}

TEST(RecoveryRound, AnswersToAnEarlierHoldDoNotCount) {
  RecoveryRound round;
  EXPECT_FALSE(round.active());
  round.Begin("no heartbeat for 9 s", Seconds(9), Time(Seconds(20)));
  round.BeginHold();
  EXPECT_EQ(round.hold(), 1);
  const NodeId worker{Role::kWorker, 0};
  round.Add(worker, Complete(3));
  EXPECT_TRUE(round.Has(worker));
  EXPECT_FALSE(round.Has({Role::kServer, 0}));
  round.BeginHold();
  EXPECT_EQ(round.hold(), 2);
  EXPECT_FALSE(round.Has(worker));
  EXPECT_THAT(round.FindCut({}).holders, IsEmpty());
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
