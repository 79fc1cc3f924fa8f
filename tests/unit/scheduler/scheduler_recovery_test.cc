// SchedulerActor: from where a job goes on whose nodes are lost before its first iteration is done.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_testing.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class FirstIterationTest : public SchedulerTest {
 protected:
  // Another process has the lost worker's place.
  void Replace(const NodeId& worker) { Register(worker, ++incarnation_); }
  // The worker has stopped the exchange, and lacks values.
  void HoldNothing(const NodeId& worker) { Hold(worker, wire::Holdings()); }

  uint64_t incarnation_ = 10;
};

// Worker 0 fills in the first values before the first plan starts; its replacement was to get them.
TEST_F(FirstIterationTest, AJobEndsWhoseValuesAreLostBeforeTheyHaveComeToAReplacement) {
  BeginTraining();
  FallSilent(kWorkers[0]);
  Hold(kWorkers[1], 0);
  Replace(kWorkers[0]);
  ASSERT_THAT(plan_.plan().holders(), testing::ElementsAre(1));
  ASSERT_EQ(plan_.plan().start_iteration(), 0);
  SayReady();
  FallSilent(kWorkers[1]);
  HoldNothing(kWorkers[0]);
  EXPECT_THAT(TakeEnd(), StartsWith("3 lost every node that had the parameters"));
}

// It has filled them in, or will.
TEST_F(FirstIterationTest, AJobBeginsOnceMoreWhereNobodyHasGotValues) {
  BeginTraining();
  for (const NodeId& lost : kWorkers) {
    FallSilent(lost);
    HoldNothing(kWorkers[1 - lost.rank]);
    Replace(lost);
    EXPECT_THAT(plan_.plan().holders(), testing::IsEmpty());
    SayReady();
    EXPECT_TRUE(HasSent(MessageKind::kStart));
  }
}

// The plan is not to start with a snapshot that only the lost one had.
TEST_F(FirstIterationTest, WhatALostWorkerDeclaredIsForgotten) {
  RegisterAll();
  Declare(kWorkers[0], 5);
  FallSilent(kWorkers[0]);
  HoldNothing(kWorkers[1]);
  Replace(kWorkers[0]);
  Declare(kWorkers[1], 0);
  EXPECT_FALSE(HasSent(MessageKind::kPlan));
  Declare(kWorkers[0], 0);
  ASSERT_TRUE(HasSent(MessageKind::kPlan));
  EXPECT_EQ(plan_.plan().start_iteration(), 0);
}

TEST_F(FirstIterationTest, WhoIsToFillInTheFirstValuesNeedsTheirSnapshot) {
  RegisterAll();
  Declare(kWorkers[0], 5);
  Declare(kWorkers[1], 0);
  ASSERT_EQ(plan_.plan().start_iteration(), 5);
  FallSilent(kWorkers[0]);
  HoldNothing(kWorkers[1]);
  Replace(kWorkers[0]);
  Declare(kWorkers[0], 0);
  EXPECT_THAT(TakeEnd(), AllOf(StartsWith("6 worker 0 (node"),
                               HasSubstr("found no snapshot, but the job goes on from that of "
                                         "iteration 5: copy that to node")));
}

TEST_F(FirstIterationTest, WhoGetsTheValuesOfOthersNeedsNoSnapshot) {
  RegisterAll();
  Declare(kWorkers[0], 5);
  Declare(kWorkers[1], 0);
  SayReady();
  FallSilent(kWorkers[0]);
  Hold(kWorkers[1], 5);
  Replace(kWorkers[0]);
  Declare(kWorkers[0], 0);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
}

}  // namespace
}  // namespace poseidon
