// WorkerProtocol by hand: what it sends when, and that nothing out of turn disturbs it. Whole
// trainings with it are in tests/simulation.
#include "client/worker_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/error.h"
#include "tests/unit/client/worker_protocol_fixture.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST_F(WorkerProtocolTest, StartsStepByStep) {
  EXPECT_EQ(protocol_.phase(), Phase::kJoining);
  Join();
  EXPECT_EQ(protocol_.phase(), Phase::kDeclaring);
  EXPECT_EQ(protocol_.rank(), 0);

  wire::TrainingInputs inputs;
  inputs.set_first_iteration(40);
  protocol_.Declare(ModelSpec(), inputs, outbox_);
  EXPECT_EQ(protocol_.phase(), Phase::kPlanning);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kDeclareModel));
  wire::Declaration declaration;
  ASSERT_TRUE(declaration.ParseFromString(sent_[0].body.ToString()));
  EXPECT_EQ(declaration.inputs().first_iteration(), 40);
  EXPECT_EQ(sent_[0].epoch, kEpoch);

  GivePlan(TwoLayers(0, 40, true));
  EXPECT_EQ(protocol_.phase(), Phase::kPreparing);
  EXPECT_EQ(protocol_.iteration(), 40);
  EXPECT_THAT(Sent(), IsEmpty());

  protocol_.Begin(outbox_);
  EXPECT_EQ(protocol_.phase(), Phase::kStarting);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kLocalReady));
  EXPECT_FALSE(protocol_.AllFresh());

  Receive(Message(MessageKind::kStart));
  EXPECT_EQ(protocol_.phase(), Phase::kTraining);
  // Worker 0's first values, of each bucket to each lane.
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kPublishInitial, MessageKind::kPublishInitial,
                                  MessageKind::kPublishInitial, MessageKind::kPublishInitial));
}

TEST_F(WorkerProtocolTest, APlanThatStartsWithWhatTheWorkerHasNotIsRefused) {
  Join();
  wire::TrainingInputs inputs;
  inputs.set_first_iteration(40);
  protocol_.Declare(ModelSpec(), inputs, outbox_);
  EXPECT_THROW(GivePlan(TwoLayers(0, 41, true)), Error);
}

TEST_F(WorkerProtocolTest, DeclaresAgainToTheSchedulerOfALaterView) {
  Join();
  Join();
  EXPECT_THAT(Sent(), IsEmpty()) << "nothing has been declared";
  wire::TrainingInputs inputs;
  inputs.set_first_iteration(40);
  protocol_.Declare(ModelSpec(), inputs, outbox_);
  Sent();
  const std::string declared = sent_[0].body.ToString();
  Join();
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kDeclareModel));
  EXPECT_EQ(sent_[0].body.ToString(), declared);
  GivePlan(TwoLayers(0, 40, true));
  Join();
  EXPECT_THAT(Sent(), IsEmpty()) << "there is a plan";
}

class WorkerProtocolOfOthersTest : public WorkerProtocolTest {
 protected:
  WorkerProtocolOfOthersTest() : WorkerProtocolTest(1) {}
};

TEST_F(WorkerProtocolOfOthersTest, PublishesNothing) {
  Join();
  protocol_.Declare(ModelSpec(), {}, outbox_);
  GivePlan(TwoLayers(0, 0, true));
  protocol_.Begin(outbox_);
  Sent();
  Receive(Message(MessageKind::kStart));
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(WorkerProtocolTest, RefusesNamesThatCannotBeSent) {
  Join();
  ModelSpec bad_layer;
  bad_layer.add_layers()->set_name("conv\xff");
  ModelSpec bad_type;
  bad_type.add_layers()->set_type(
      "Convolu\xe7"
      "ao");
  ModelSpec bad_model;
  bad_model.set_name("caf\xe9");
  for (const ModelSpec& model : {bad_layer, bad_type, bad_model}) {
    EXPECT_THROW(protocol_.Declare(model, {}, outbox_), ConfigError);
  }
  EXPECT_EQ(protocol_.phase(), Phase::kDeclaring);
}

TEST_F(WorkerProtocolTest, HandsEachGradientToTheLanes) {
  StartTraining();
  Iterate();
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kGradientReady, MessageKind::kGradientReady,
                                  MessageKind::kGradientReady, MessageKind::kGradientReady));
  EXPECT_EQ(sent_[0].bucket, 1u);  // the upper layer's first
  EXPECT_EQ(sent_[3].bucket, 0u);
  for (const Envelope& envelope : sent_) EXPECT_EQ(envelope.iteration, 0);
  EndIteration();
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kProgress));
  EXPECT_EQ(protocol_.iteration(), 1);
  EXPECT_EQ(protocol_.phase(), Phase::kTraining);
  EXPECT_FALSE(protocol_.IsFresh(0, 1));
}

TEST_F(WorkerProtocolTest, GradientsCarryTheNumbersOfTheirBucketsGroups) {
  Join();
  protocol_.Declare(ModelSpec(), {}, outbox_);
  wire::PlanAndModel plan = TwoLayers(0, 0, false);
  plan.mutable_model()->mutable_update_rule()->set_type("TorchSGD");
  plan.mutable_model()->mutable_layers(1)->mutable_blobs(0)->set_group(1);
  GivePlan(plan);
  protocol_.Begin(outbox_);
  Receive(Message(MessageKind::kStart));
  Sent();
  for (const double rate : {0.1, 0.2}) {
    const std::vector<ParameterGroup> groups = {{.learning_rate = rate}, {.learning_rate = 7}};
    protocol_.SetGroups(groups);
    Iterate();
    Sent();
    ASSERT_EQ(sent_.size(), 4u);  // two lanes
    EXPECT_EQ(sent_[1].settings.ToString(), PackSettings(std::span(groups).last(1)));
    EXPECT_EQ(sent_[3].settings.ToString(), PackSettings(std::span(groups).first(1)));
    EndIteration();
    Sent();
  }
}

TEST_F(WorkerProtocolTest, WhatComesOutOfTurnChangesNothing) {
  Receive(Message(MessageKind::kStart));
  Receive(Message(MessageKind::kPlan));  // of a plan that nobody handed over
  Receive(Fresh(0, 0));
  Receive(StateOf(0, 1));
  EXPECT_EQ(protocol_.phase(), Phase::kJoining);
  Join();
  Receive(Message(MessageKind::kStart));
  EXPECT_EQ(protocol_.phase(), Phase::kDeclaring);
  protocol_.Declare(ModelSpec(), {}, outbox_);
  GivePlan(TwoLayers(0, 0, true));
  protocol_.Begin(outbox_);
  Receive(Message(MessageKind::kStart));
  Sent();
  Receive(Message(MessageKind::kStart));  // once more: nothing is published twice
  EXPECT_THAT(Sent(), IsEmpty());
  Receive(Fresh(0, 0, kEpoch + 1));  // another plan's
  EXPECT_FALSE(protocol_.IsFresh(0, 0));
  Receive(Message(MessageKind::kEnd));
  EXPECT_EQ(protocol_.phase(), Phase::kTraining);
}

// Of the phases between two plans, and what is moved.
TEST_F(WorkerProtocolTest, GoesOverToAnotherPlan) {
  StartTraining();
  Iterate();
  EndIteration();
  Sent();
  Receive(Message(MessageKind::kPauseRequest));
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kPauseOffer));
  const int64_t offer = sent_[0].iteration;
  ASSERT_GT(offer, protocol_.iteration());
  while (protocol_.iteration() < offer) {
    ASSERT_EQ(protocol_.phase(), Phase::kTraining);
    Iterate();
    EndIteration();
  }
  EXPECT_EQ(protocol_.phase(), Phase::kAgreeing);  // it has not been told where to pause
  Receive(Message(MessageKind::kPauseAt, offer + 1));
  EXPECT_EQ(protocol_.phase(), Phase::kTraining);
  Iterate();
  EndIteration();
  EXPECT_EQ(protocol_.phase(), Phase::kPausing);
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, offer + 1));
  ASSERT_TRUE(protocol_.AllFresh());
  std::ranges::fill(protocol_.context().memory->values(1), 4.0F);
  std::ranges::fill(protocol_.context().memory->bucket(1).optimizer_state[0], 7.0F);
  Sent();

  protocol_.LeavePlan(outbox_);  // workers update: nothing has to be fetched
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kPaused));
  EXPECT_EQ(sent_[0].step, 0u);
  EXPECT_EQ(protocol_.phase(), Phase::kPlanning);

  GivePlan(TwoLayers(1, offer + 1, true));
  EXPECT_EQ(protocol_.phase(), Phase::kPreparing);
  EXPECT_EQ(protocol_.iteration(), offer + 1);
  EXPECT_EQ(protocol_.context().memory->values(1)[0], 4.0F);
  EXPECT_EQ(protocol_.context().memory->bucket(1).optimizer_state[0][4], 7.0F);
  protocol_.Begin(outbox_);
  Receive(Message(MessageKind::kStart));
  Receive(Fresh(0, offer + 1, kEpoch));  // late, of the plan before
  EXPECT_FALSE(protocol_.IsFresh(0, offer + 1));
  Receive(Fresh(0, offer + 1, kEpoch + 1));
  EXPECT_TRUE(protocol_.IsFresh(0, offer + 1));
}

TEST_F(WorkerProtocolTest, SaysAgainWhatMayHaveBeenLostWithAConnection) {
  StartTraining();
  Join();
  EXPECT_THAT(Sent(), IsEmpty());
  Receive(Message(MessageKind::kPauseRequest));
  Sent();
  const int64_t offer = sent_[0].iteration;
  Iterate();
  EndIteration();
  Sent();
  Join();
  ASSERT_THAT(Sent(), ElementsAre(MessageKind::kPauseOffer));
  EXPECT_EQ(sent_[0].iteration, offer) << "it keeps its word";
  Receive(Message(MessageKind::kPauseAt, offer));
  Join();
  EXPECT_THAT(Sent(), IsEmpty());
  while (protocol_.iteration() < offer) {
    Iterate();
    EndIteration();
  }
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, offer));
  protocol_.LeavePlan(outbox_);
  Sent();
  Join();
  ASSERT_THAT(Sent(), ElementsAre(MessageKind::kPaused));
  EXPECT_EQ(sent_[0].step, 0u);
}

TEST_F(WorkerProtocolTest, AsksAgainToLeave) {
  Join();
  EXPECT_FALSE(protocol_.leaves());
  protocol_.Leave(outbox_);
  EXPECT_TRUE(protocol_.leaves());
  Join();
  EXPECT_THAT(Sent(), IsEmpty()) << "there is nothing to leave yet";
  protocol_.Declare(ModelSpec(), {}, outbox_);
  GivePlan(TwoLayers(0, 0, true));
  protocol_.Begin(outbox_);
  Sent();
  Join();
  EXPECT_THAT(Sent(), IsEmpty()) << "it is said when the training begins";
  Receive(Message(MessageKind::kStart));
  EXPECT_THAT(Sent(), testing::Contains(MessageKind::kLeave));
  Join();
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kLeave));
}

TEST_F(WorkerProtocolTest, FetchesWhatServersKeepBeforeItPauses) {
  StartTraining(false);
  Receive(Message(MessageKind::kPauseRequest));
  Receive(Message(MessageKind::kPauseAt, 1));
  Iterate();
  EndIteration();
  ASSERT_EQ(protocol_.phase(), Phase::kPausing);
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, 1));
  Sent();
  protocol_.LeavePlan(outbox_);
  EXPECT_EQ(protocol_.phase(), Phase::kFetching);
  for (const MessageKind kind : Sent()) EXPECT_EQ(kind, MessageKind::kCollectOptimizerState);
  for (int bucket = 0; bucket < 2; ++bucket) {
    EXPECT_EQ(protocol_.phase(), Phase::kFetching);
    Receive(StateOf(bucket, 2.5F));
  }
  EXPECT_EQ(protocol_.phase(), Phase::kPlanning);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kPaused));
}

TEST_F(WorkerProtocolTest, NobodyPausesAfterTheLastIteration) {
  StartTraining();
  Receive(Message(MessageKind::kPauseRequest));
  Receive(Message(MessageKind::kPauseAt, 1));
  Iterate();
  EndIteration(1);
  EXPECT_EQ(protocol_.phase(), Phase::kTraining);
  Sent();
  protocol_.Finish({}, outbox_);
  EXPECT_THAT(Sent(), ElementsAre(MessageKind::kFinished));
  wire::WorkerReport report;
  ASSERT_TRUE(report.ParseFromString(sent_[0].body.ToString()));
  EXPECT_EQ(report.buckets_size(), 2);
  Receive(Message(MessageKind::kPauseRequest));
  EXPECT_THAT(Sent(), IsEmpty());
}

TEST_F(WorkerProtocolTest, CollectsWithoutLeavingThePlan) {
  StartTraining(false);
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, 0));
  protocol_.BeginCollecting(outbox_);
  ASSERT_TRUE(protocol_.collecting());
  for (int bucket = 0; bucket < 2; ++bucket)
    Receive(StateOf(bucket, static_cast<float>(bucket + 1)));
  EXPECT_FALSE(protocol_.collecting());
  EXPECT_THAT(protocol_.TakeCollected(), ElementsAre(1, 1, 1, 2, 2, 2, 2, 2));
  EXPECT_EQ(protocol_.phase(), Phase::kTraining);
}

// A data lane may pass a frame on just before it hears of the hold that the program has heard of.
TEST_F(WorkerProtocolTest, WhatWasCollectedIsOfNoUseAfterAHold) {
  recovers_ = true;
  StartTraining(false);
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, 0));
  protocol_.BeginCollecting(outbox_);
  Receive(Message(MessageKind::kHold));
  ASSERT_EQ(protocol_.phase(), Phase::kHeld);
  Receive(StateOf(0, 1));
  EXPECT_EQ(protocol_.phase(), Phase::kHeld);
  EXPECT_FALSE(protocol_.collecting());
}

TEST_F(WorkerProtocolTest, ASnapshotStaysWantedUntilItIsWritten) {
  recovers_ = true;
  StartTraining();
  EXPECT_FALSE(protocol_.snapshot_is_wanted());
  Receive(Message(MessageKind::kWriteSnapshot));
  EXPECT_TRUE(protocol_.snapshot_is_wanted());
  Receive(Message(MessageKind::kHold));
  GivePlan(TwoLayers(1, 0, true));
  EXPECT_TRUE(protocol_.snapshot_is_wanted());
  protocol_.AnswerSnapshotRequest();
  EXPECT_FALSE(protocol_.snapshot_is_wanted());
}

// A worker that comes to a job in which another one has all that it goes on from.
class NewcomerTest : public WorkerProtocolTest {
 protected:
  NewcomerTest() : WorkerProtocolTest(1) {
    recovers_ = true;
    Join();
    protocol_.Declare(ModelSpec(), {}, outbox_);
  }

  // Up to the arrival of the plan's values; nullptr: in other memory.
  void Start(int number, const std::vector<int>& holders,
             std::shared_ptr<const ModelMemory> memory) {
    wire::PlanAndModel plan = TwoLayers(number, 5, true);
    plan.mutable_plan()->mutable_holders()->Assign(holders.begin(), holders.end());
    GivePlan(plan, std::move(memory));
    protocol_.Begin(outbox_);
    Envelope start = Message(MessageKind::kStart);
    start.step = static_cast<uint32_t>(number);
    Receive(start);
    kept().AllArrived(5);
  }
  KeptState& kept() { return *protocol_.context().kept; }
};

TEST_F(NewcomerTest, HasNotAllBeforeItHasTheStatistics) {
  Start(1, {0}, nullptr);
  EXPECT_FALSE(kept().complete());
  for (int number = 2; number <= 3; ++number) {
    // Who was to send them is lost, or the frame is.
    Receive(Message(MessageKind::kHold, number - 1));
    Start(number, {0}, number == 2 ? protocol_.context().memory : nullptr);
    EXPECT_FALSE(kept().complete());
    EXPECT_EQ(protocol_.base(), kEpoch) << "the job is the same";
  }
  protocol_.TookStatistics();
  EXPECT_TRUE(kept().complete());
  Receive(Message(MessageKind::kHold, 3));
  Start(4, {0, 1}, protocol_.context().memory);
  EXPECT_TRUE(kept().complete());
}

TEST_F(NewcomerTest, HasAllWhenItComputesWithoutStatistics) {
  Start(1, {0}, nullptr);
  protocol_.GradientReady(1, 5, Time(), outbox_);
  EXPECT_TRUE(kept().complete());
}

// A node is lost before anybody has what training starts with, which only worker 0 has.
class FirstValuesTest : public WorkerProtocolTest, public testing::WithParamInterface<bool> {
 protected:
  // Up to the loss, which comes when training is about to start, or has `started`.
  void Lose(bool at_workers, bool started) {
    recovers_ = true;
    Join();
    wire::TrainingInputs inputs;
    inputs.set_first_iteration(40);
    protocol_.Declare(ModelSpec(), inputs, outbox_);
    GivePlan(TwoLayers(0, 40, at_workers));
    std::ranges::fill(protocol_.context().memory->values(1), 4.0F);
    protocol_.RestoreOptimizerState(std::vector<float>(8, 7.0F));
    protocol_.Begin(outbox_);
    if (started) Receive(Message(MessageKind::kStart));
    Receive(Message(MessageKind::kHold));
  }

  // The next plan starts training; floats that are published beside the values.
  std::vector<size_t> Start() {
    protocol_.Begin(outbox_);
    Sent();
    Envelope start = Message(MessageKind::kStart);
    start.step = 1;
    Receive(start);
    Sent();
    std::vector<size_t> floats;
    for (const Envelope& one : sent_) floats.push_back(one.body.size() / sizeof(float));
    return floats;
  }
};

TEST_P(FirstValuesTest, GoAlongToOtherMemory) {
  Lose(true, GetParam());
  GivePlan(TwoLayers(1, 40, true));
  EXPECT_THAT(protocol_.context().memory->values(1), testing::Each(4.0F));
  EXPECT_THAT(protocol_.context().memory->bucket(1).optimizer_state[0], testing::Each(7.0F));
}

TEST_P(FirstValuesTest, OfSnapshotsAreStillThereForServers) {
  Lose(false, GetParam());
  GivePlan(TwoLayers(1, 40, false), protocol_.shared_context()->memory);
  EXPECT_THAT(Start(), ElementsAre(3, 3, 5, 5));
}

TEST_P(FirstValuesTest, OfSnapshotsGoAlongForServersToo) {
  Lose(false, GetParam());
  GivePlan(TwoLayers(1, 40, false));
  EXPECT_THAT(Start(), ElementsAre(3, 3, 5, 5));
  EXPECT_THAT(protocol_.context().memory->values(1), testing::Each(4.0F));
  // And the next plan waits for no more than the servers have now.
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, 40, kEpoch + 1));
  Receive(Message(MessageKind::kPauseRequest));
  Receive(Message(MessageKind::kPauseAt, 41));
  for (int layer = 0; layer < 2; ++layer) protocol_.GradientReady(layer, 40, Time(), outbox_);
  EndIteration();
  for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, 41, kEpoch + 1));
  protocol_.LeavePlan(outbox_);
  for (Envelope state : {StateOf(0, 1), StateOf(1, 1)}) {
    EXPECT_EQ(protocol_.phase(), Phase::kFetching);
    state.epoch = kEpoch + 1;
    Receive(state);
  }
  EXPECT_EQ(protocol_.phase(), Phase::kPlanning);
}

INSTANTIATE_TEST_SUITE_P(BeforeAndAfterTheStart, FirstValuesTest, testing::Bool());

}  // namespace
}  // namespace poseidon
