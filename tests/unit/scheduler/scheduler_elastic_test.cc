// What the scheduler does of a job whose workers come and go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/scheduler/scheduler_testing.h"

namespace poseidon {
namespace {

class ElasticSchedulerTest : public SchedulerTest {
 protected:
  ElasticSchedulerTest() : SchedulerTest(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options = TwoWorkers(Recovery::SHRINK);
    options.job.mutable_elastic()->set_min_workers(1);
    return options;
  }

  // As `poseidon run` tells of it.
  void LoseProcess(const NodeId& node) {
    wire::LostProcess lost;
    lost.set_role(static_cast<uint32_t>(node.role));
    lost.set_rank(node.rank);
    lost.set_cause("was killed by signal 9");
    Send(MakeEnvelope(MessageKind::kLostProcess, Here(kControlLane), lost));
  }

  // Worker 1, which has left and has not heard so, asks whether it is still in the job.
  void ExpectLeaverIsTold() {
    Register(kWorkers[1], 3);
    ASSERT_TRUE(HasSent(MessageKind::kRefused)) << "it hears no other kind";
    wire::End told;
    ASSERT_TRUE(told.ParseFromString(outbox_.messages.back().body.ToString()));
    EXPECT_EQ(told.reason(), "left the job, as it was asked to");
    EXPECT_EQ(told.exit_code(), 0) << "nobody starts it again";
    EXPECT_TRUE(told.left());
  }
};

// As by a second SIGTERM: the job does not end with it.
TEST_F(ElasticSchedulerTest, ALeaverThatCanNotWaitIsLost) {
  BeginTraining();
  AskToLeave(kWorkers[1]);
  Tell(kWorkers[1], MessageKind::kFailed, MakeEnd(ExitCode::kInterrupted, "interrupted"));
  EXPECT_TRUE(HasSent(MessageKind::kHold));
}

// By a second SIGTERM, after the scheduler has said no to the first.
TEST_F(ElasticSchedulerTest, AWorkerThatHadToStayIsLostAlone) {
  options_.job.mutable_elastic()->set_min_workers(2);
  StartScheduler();
  BeginTraining();
  AskToLeave(kWorkers[1]);
  EXPECT_THAT(Notices(), testing::HasSubstr("worker 1 (node, process 0) can't leave: 2"));
  wire::End end = MakeEnd(ExitCode::kInterrupted, "interrupted");
  end.set_left(true);  // it still wants to
  Tell(kWorkers[1], MessageKind::kFailed, end);
  EXPECT_TRUE(HasSent(MessageKind::kHold));
  Hold();
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
}

// It is the only one that has the parameters.
TEST_F(ElasticSchedulerTest, ALeaverStaysWhereALossHasLeftTooFew) {
  BeginTraining();
  AskToLeave(kWorkers[0]);
  EXPECT_THAT(journal_.leaving, testing::ElementsAre(kWorkers[0]));
  FallSilent(kWorkers[1]);
  Hold();
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
  EXPECT_FALSE(HasSent(MessageKind::kPauseRequest));
  EXPECT_THAT(Notices(),
              testing::HasSubstr("stays: without it 0 worker(s) would be left, and the job wants 1 "
                                 "(elastic.min_workers)"));
  EXPECT_THAT(journal_.leaving, testing::IsEmpty());
}

// The scheduler dies before the others train on.
TEST_F(ElasticSchedulerTest, WhoHasLeftIsNotLostUnderTheNextSchedulerEither) {
  BeginTraining();
  AskToLeave(kWorkers[1]);
  for (const NodeId& worker : kWorkers) Offer(worker, 3);
  for (const NodeId& worker : kWorkers) {
    Envelope paused;
    paused.kind = MessageKind::kPaused;
    paused.step = static_cast<uint32_t>(plan_.plan().number());
    SendAs(worker, paused);
  }
  ASSERT_TRUE(HasSent(MessageKind::kHold));
  EXPECT_THAT(journal_.losses_without_progress, testing::IsEmpty());
  EXPECT_THAT(journal_.vacated, testing::ElementsAre(kWorkers[1]));
  ExpectLeaverIsTold();
  StartScheduler();
  ExpectLeaverIsTold();
  Hold(kWorkers[0], 3);
  EXPECT_EQ(Notices(), "") << "nobody is missing";
  SayReady();
  wire::Recovered recovered;
  for (const Envelope& sent : outbox_.messages) {
    if (sent.kind != MessageKind::kRecovered) continue;
    EXPECT_TRUE(recovered.ParseFromString(sent.body.ToString()));
  }
  EXPECT_EQ(recovered.lost_size(), 0);
  ASSERT_EQ(recovered.left_size(), 1);
  EXPECT_EQ(recovered.left(0).rank(), 1);
}

// Nobody starts another process of a job that has nothing to go on from.
TEST_F(ElasticSchedulerTest, AProcessLostBeforeTrainingEndsTheJobUnderTheNextSchedulerToo) {
  RegisterAll();
  StartScheduler();
  LoseProcess(kWorkers[1]);
  EXPECT_THAT(TakeEnd(),
              testing::AllOf(testing::StartsWith("3 lost worker 1"),
                             testing::EndsWith("it was killed by signal 9; before training begins "
                                               "nobody can go on without it (recovery.mode)")));
}

// Who comes too early asks again; who can never come need not.
TEST_F(ElasticSchedulerTest, ANodeOfAnotherBuildIsRefusedBeforeTrainingToo) {
  options_.build = "1+aa";
  StartScheduler();
  RegisterAll();
  constexpr NodeId kAny{Role::kWorker, -1};
  Register(kAny, 10, 1, "node", "1+aa");
  EXPECT_FALSE(HasSent(MessageKind::kRefused) || HasSent(MessageKind::kView));
  Register(kAny, 11, 1, "node", "1+bb");
  ASSERT_TRUE(HasSent(MessageKind::kRefused));
  wire::End refusal;
  ASSERT_TRUE(refusal.ParseFromString(outbox_.messages.back().body.ToString()));
  EXPECT_EQ(
      refusal.reason(),
      "the scheduler refused this worker: it is of build 1+bb, the scheduler of 1+aa; install "
      "the same build on every machine, and start this process again");
}

}  // namespace
}  // namespace poseidon
