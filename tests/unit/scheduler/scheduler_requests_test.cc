// What the scheduler is asked for while a job trains: to pause, to stop, to have a snapshot
// written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_testing.h"

namespace poseidon {
namespace {

class SchedulerRequestsTest : public SchedulerTest {};

// By two SIGTERMs, before it has the plan in which it could ask to leave.
class EndedLeaverTest : public SchedulerTest {
 protected:
  EndedLeaverTest() : SchedulerTest(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options = TwoWorkers(Recovery::SHRINK);
    options.job.mutable_elastic()->set_min_workers(1);
    return options;
  }

  void EndWorker1() {
    wire::End end = MakeEnd(ExitCode::kInterrupted, "interrupted");
    end.set_left(true);
    Tell(kWorkers[1], MessageKind::kFailed, end);
  }
};

TEST_F(EndedLeaverTest, IsLostAloneOnceTrainingHasBegun) {
  BeginTraining();
  EndWorker1();
  EXPECT_TRUE(HasSent(MessageKind::kHold));
  Hold();
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
}

TEST_F(EndedLeaverTest, EndsAJobThatHasNotBegun) {
  RegisterAll();
  EndWorker1();
  EXPECT_THAT(TakeEnd(), testing::StartsWith("3 worker 1"));
}

// The snapshot of the stop's iteration can be written when all have gone back.
TEST_F(SchedulerRequestsTest, AStopInARecoveryIsForWhenTheJobGoesOn) {
  BeginTraining();
  FallSilent(kWorkers[1]);
  Ask(MessageKind::kStopTraining);
  Hold();
  Ask(MessageKind::kStopTraining);
  Register(kWorkers[1], 10);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
  EXPECT_TRUE(HasSent(MessageKind::kPauseRequest));
}

// The answer was lost with the worker's connection, and the worker says its offer again.
TEST_F(SchedulerRequestsTest, AnOfferThatIsMadeAgainIsAnsweredAgain) {
  BeginTraining();
  Send(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), plan_));
  Offer(kWorkers[0], 4);
  Offer(kWorkers[0], 4);
  EXPECT_FALSE(SentIteration(MessageKind::kPauseAt)) << "the other one has not offered";
  Offer(kWorkers[1], 3);
  ASSERT_EQ(SentIteration(MessageKind::kPauseAt), 4);
  Offer(kWorkers[1], 3);
  EXPECT_EQ(SentIteration(MessageKind::kPauseAt), 4);
  EXPECT_EQ(outbox_.messages.size(), 1u) << "the other one knows";
}

// One that has finished offers nothing, and says what it did only when it has the start.
TEST_F(SchedulerRequestsTest, WhoLacksTheStartIsSentItAlsoWhileTheOthersPause) {
  BeginTraining();
  Ask(MessageKind::kStopTraining);
  Envelope ready;
  ready.kind = MessageKind::kReady;
  ready.step = static_cast<uint32_t>(plan_.plan().number());
  SendAs(kWorkers[1], ready);
  EXPECT_TRUE(HasSent(MessageKind::kStart)) << "while they agree";
  for (const NodeId& worker : kWorkers) Offer(worker, 3);
  SendAs(kWorkers[1], ready);
  EXPECT_TRUE(HasSent(MessageKind::kStart)) << "while they pause";
}

TEST_F(SchedulerRequestsTest, WhoOffersAgainIsToldAgainWhereTheJobStops) {
  BeginTraining();
  Ask(MessageKind::kStopTraining);
  for (const NodeId& worker : kWorkers) Offer(worker, 3);
  Offer(kWorkers[0], 3);
  ASSERT_EQ(outbox_.messages.size(), 1u);
  EXPECT_EQ(outbox_.messages[0].iteration, 3);
  EXPECT_EQ(outbox_.messages[0].step, kStopThere);
}

// As another scheduler's launcher does, which does not know whether the signal has come.
TEST_F(SchedulerRequestsTest, AStopThatIsAskedForAgainIsBeforeTheSameIteration) {
  BeginTraining();
  Ask(MessageKind::kStopTraining);
  for (const NodeId& worker : kWorkers) Offer(worker, 3);
  EXPECT_EQ(SentIteration(MessageKind::kPauseAt), 3);
  Ask(MessageKind::kStopTraining);
  EXPECT_FALSE(HasSent(MessageKind::kPauseRequest)) << "some have stopped there";
  EXPECT_EQ(SentIteration(MessageKind::kPauseAt), 3);
  EXPECT_EQ(journal_.stage, JobState::Stage::kPausing);
  // All go back, and agree anew.
  FallSilent(kWorkers[1]);
  Hold();
  Register(kWorkers[1], 10);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kPauseRequest));
}

TEST_F(SchedulerRequestsTest, ASnapshotIsWrittenByWhoeverIsTheFirstWhenTrainingGoesOn) {
  BeginTraining();
  FallSilent(kWorkers[0]);
  Ask(MessageKind::kAskSnapshot);
  EXPECT_FALSE(HasSent(MessageKind::kWriteSnapshot));
  Hold(kWorkers[1], plan_.plan().start_iteration());
  Register(kWorkers[0], 10);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kWriteSnapshot));
}

TEST_F(SchedulerRequestsTest, ASnapshotIsAskedForAgainUntilItMustHaveBeenWritten) {
  BeginTraining();
  Ask(MessageKind::kAskSnapshot);
  EXPECT_TRUE(HasSent(MessageKind::kWriteSnapshot));
  uint64_t incarnation = 10;
  const auto is_asked_again = [&] {
    FallSilent(kWorkers[0]);
    Hold(kWorkers[1], plan_.plan().start_iteration());
    Register(kWorkers[0], incarnation++);
    SayReady();
    return HasSent(MessageKind::kWriteSnapshot);
  };
  const auto report = [&](const NodeId& worker, int64_t iteration) {
    wire::Progress progress;
    progress.set_iteration(iteration);
    Tell(worker, MessageKind::kProgress, progress);
  };
  report(kWorkers[0], 0);
  report(kWorkers[0], 1);
  EXPECT_TRUE(is_asked_again());
  report(kWorkers[1], 4);  // who does not write it
  EXPECT_TRUE(is_asked_again());
  for (int64_t iteration = 2; iteration < 8; ++iteration) report(kWorkers[0], iteration);
  EXPECT_FALSE(is_asked_again());
}

TEST_F(SchedulerRequestsTest, AStoppedJobWhosePlaceNobodyTakesIsInterrupted) {
  BeginTraining();
  FallSilent(kWorkers[1]);
  Hold();
  Ask(MessageKind::kStopTraining);
  outbox_.Clear();
  scheduler_->OnTimer(kPhaseDeadline, outbox_);
  TakeSent();
  EXPECT_THAT(TakeEnd(), testing::StartsWith("130 a signal stopped it; lost worker 1"));
}

}  // namespace
}  // namespace poseidon
