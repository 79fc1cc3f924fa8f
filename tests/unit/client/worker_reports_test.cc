// What a worker tells of its iterations, and tells again to a scheduler that may not have heard it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/worker_protocol_fixture.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using WorkerReportsTest = WorkerProtocolTest;

TEST_F(WorkerReportsTest, TellsAnotherSchedulerWhatTheFirstMayNotHaveHeard) {
  recovers_ = true;
  StartTraining();
  for (int i = 0; i < 3; ++i) {
    Iterate();
    EndIteration(3);
  }
  Sent();
  EXPECT_THAT(Reported(), ElementsAre(0, 1, 2));
  Receive(Message(MessageKind::kStart, 1));
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kProgress, MessageKind::kProgress));
  EXPECT_THAT(Reported(), ElementsAre(1, 2));
  protocol_.Finish({}, outbox_);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kFinished));
  Envelope of_another_plan = Message(MessageKind::kStart, 0);
  of_another_plan.step = 7;
  Receive(of_another_plan);
  EXPECT_THAT(Sent(), IsEmpty());
  Receive(Message(MessageKind::kStart, 3));
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kFinished));
}

TEST_F(WorkerReportsTest, HasFinishedOnlyWhenItHasToldWhatItDid) {
  recovers_ = true;
  StartTraining();
  Iterate();
  EndIteration(1);
  protocol_.Finish({}, outbox_);
  Sent();
  Join();  // cut off for a while
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kFinished));
  Join(kEpoch + 1);  // another scheduler, to which the others may have said that they are ready
  EXPECT_THAT(Sent(), IsEmpty());
  Join(kEpoch + 1);  // cut off again, and the start may be lost with what was sent
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kLocalReady));
  Receive(Message(MessageKind::kStart, 0));
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kProgress, MessageKind::kFinished));
  Join(kEpoch + 1);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kFinished));
}

TEST_F(WorkerReportsTest, EndsTheTrainingOnlyWhenItHasToldAnotherSchedulerWhatItDid) {
  recovers_ = true;
  StartTraining();
  Iterate();
  EndIteration(2);
  Join(kEpoch + 1);
  Iterate();
  EndIteration(2);
  Sent();
  protocol_.Finish({}, outbox_);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kLocalReady));
  Receive(Message(MessageKind::kStart, 0));
  EXPECT_THAT(Sent(),
              ElementsAre(MessageKind::kProgress, MessageKind::kProgress, MessageKind::kFinished));
}

TEST_F(WorkerReportsTest, RemembersIterationsOnlyWhereTheJobRecovers) {
  StartTraining();
  Iterate();
  EndIteration();
  Sent();
  Receive(Message(MessageKind::kStart, 0));
  EXPECT_THAT(Sent(), IsEmpty());
}

// A program need not say how many samples an iteration has.
TEST_F(WorkerReportsTest, ReportsThePaceOfIterationsWhoseSamplesNobodyKnows) {
  Join();
  protocol_.Declare(ModelSpec(), {}, outbox_);
  wire::PlanAndModel plan = TwoLayers(0, 0, /*at_workers=*/true);
  plan.mutable_model()->clear_batch();
  GivePlan(plan);
  protocol_.Begin(outbox_);
  Receive(Message(MessageKind::kStart));
  constexpr int kSample = 10;
  for (int i = 0; i < ComputeSpread::kSkipped + kSample; ++i) {
    Iterate();
    wire::Progress progress;
    progress.set_iteration_seconds(0.25);
    protocol_.EndIteration(std::move(progress), outbox_);
  }
  Sent();
  protocol_.Finish({}, outbox_);
  ASSERT_THAT(Sent(), ElementsAre(MessageKind::kFinished));
  wire::WorkerReport report;
  ASSERT_TRUE(report.ParseFromString(sent_[0].body.ToString()));
  EXPECT_EQ(report.pace().iterations(), kSample);
  EXPECT_EQ(report.pace().iteration_ms(), 250);
}

// A week's iterations would not fit: those of the last minute are what a scheduler may have missed.
TEST_F(WorkerReportsTest, RemembersAMinuteInLessThanAMegabyte) {
  constexpr int64_t kIterations = 5000;
  constexpr int64_t kOfAMinute = 60'000 / 15;  // ms; of a net that takes 15
  constexpr size_t kMegabyte = 1'000'000;
  recovers_ = true;
  StartTraining();
  for (int64_t i = 0; i < kIterations; ++i) {
    Iterate();
    wire::Progress progress;
    progress.set_loss(1);
    progress.set_images(32);
    progress.set_iteration_seconds(0.015);
    // Of a net with many layers; the monitor wants it once.
    for (int bucket = 0; bucket < 100; ++bucket) {
      progress.mutable_timeline()->add_buckets()->set_ready_ms(bucket + 0.5);
    }
    protocol_.EndIteration(std::move(progress), outbox_);
    Sent();
    ASSERT_THAT(Reported(), ElementsAre(i));
  }
  Receive(Message(MessageKind::kStart, 0));
  Sent();
  const std::vector<int64_t> again = Reported();
  ASSERT_GE(std::ssize(again), kOfAMinute);
  for (size_t i = 0; i < again.size(); ++i) {
    ASSERT_EQ(again[i], kIterations - std::ssize(again) + static_cast<int64_t>(i));
  }
  size_t bytes = 0;
  for (const Envelope& envelope : sent_) bytes += envelope.body.size();
  EXPECT_LT(bytes, kMegabyte);
}

}  // namespace
}  // namespace poseidon
