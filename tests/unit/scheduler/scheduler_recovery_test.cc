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

}  // namespace
}  // namespace poseidon
