// WorkerControl, and the WorkerProtocol behind it, by hand: what becomes of messages that come more
// than once. Whole jobs with them are in tests/simulation.
#include "client/worker_control.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "client/worker_protocol.h"

namespace poseidon {
namespace {

constexpr uint64_t kBase = 70;

wire::PlanAndModel OneLayer(int number) {
  wire::PlanAndModel plan;
  ModelSpec& model = *plan.mutable_model();
  model.set_batch(1);
  model.mutable_update_rule()->set_type("SGD");
  model.mutable_update_rule()->set_lr_policy("fixed");
  plan.mutable_plan()->set_lanes(1);
  plan.mutable_plan()->set_workers(1);
  plan.mutable_plan()->set_servers(1);
  plan.mutable_plan()->set_number(number);
  LayerSpec& layer = *model.add_layers();
  layer.set_name("layer");
  layer.add_blobs()->add_shape(3);
  BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
  bucket.set_name(layer.name());
  bucket.set_layer_count(1);
  bucket.set_scheme(PS);
  bucket.add_chunks()->set_size(3);
  return plan;
}

class WorkerControlTest : public testing::Test {
 protected:
  WorkerControlTest() : control_(Options(), plans_) {
    control_.OnStart(outbox_);
    wire::View view;
    view.set_epoch(kBase);
    view.set_base(kBase);
    view.set_your_rank(0);
    Receive(MessageKind::kView, view, 0);
    Receive(MessageKind::kPlan, OneLayer(0), 0);
    SayThatTheProgramCanTrain(0);
  }

  static WorkerOptions Options() {
    WorkerOptions options;
    options.recovers = true;
    options.member.scheduler_deadline = Seconds(60);
    return options;
  }

  template <typename Message>
  void Receive(MessageKind kind, const Message& message, uint32_t step) {
    Envelope envelope = MakeEnvelope(kind, Here(kControlLane), message);
    envelope.from = {{Role::kScheduler, 0}, kControlLane};
    envelope.epoch = kBase;
    envelope.step = step;
    control_.OnMessage(envelope, outbox_);
  }
  void SayThatTheProgramCanTrain(uint32_t plan) {
    Envelope ready;
    ready.step = plan;
    ready.kind = MessageKind::kLocalReady;
    control_.OnMessage(ready, outbox_);
  }
  // Of this kind, since the last call of it.
  int CountSent(MessageKind kind) {
    int count = 0;
    for (const Envelope& envelope : std::exchange(outbox_.messages, {})) {
      count += envelope.kind == kind ? 1 : 0;
    }
    return count;
  }

  Outbox outbox_;
  std::shared_ptr<PlanHandover> plans_ = std::make_shared<PlanHandover>();
  WorkerControl control_;
};

TEST_F(WorkerControlTest, TheProgramHearsOnceOfAStartThatIsSaidOften) {
  CountSent(MessageKind::kReady);
  // A scheduler that was cut off finds all the registrations that TCP repeats, and answers each
  // with the plan, and each answer to that with a start. The program answers a start with what it
  // has done, which may be thousands of messages.
  for (int schedulers = 0; schedulers < 2; ++schedulers) {
    for (int again = 0; again < 30; ++again) Receive(MessageKind::kPlan, OneLayer(0), 0);
    EXPECT_EQ(CountSent(MessageKind::kReady), 30);
    for (int again = 0; again < 30; ++again) Receive(MessageKind::kStart, wire::View(), 0);
    EXPECT_EQ(CountSent(MessageKind::kStart), 1);
  }
}

TEST_F(WorkerControlTest, AStartThatWasLostIsHeardWhenItIsSaidAgain) {
  Receive(MessageKind::kStart, wire::View(), 1);  // of another plan
  EXPECT_EQ(CountSent(MessageKind::kStart), 0);
  Receive(MessageKind::kStart, wire::View(), 0);
  EXPECT_EQ(CountSent(MessageKind::kStart), 1);
  Receive(MessageKind::kPlan, OneLayer(1), 1);
  EXPECT_EQ(CountSent(MessageKind::kReady), 0);
  SayThatTheProgramCanTrain(1);
  EXPECT_EQ(CountSent(MessageKind::kReady), 1);
  Receive(MessageKind::kStart, wire::View(), 1);
  EXPECT_EQ(CountSent(MessageKind::kStart), 1);
}

// Else the job could go on from what this worker's net had at first.
TEST_F(WorkerControlTest, WhoAwaitsStatisticsHasNotAllThatTheJobCanGoOnFrom) {
  KeptState& kept = *plans_->Take()->kept;
  kept.AllArrived(0);
  for (const bool awaits : {true, false}) {
    kept.SetAwaitsStatistics(awaits);
    const uint32_t hold = awaits ? 1 : 2;
    Receive(MessageKind::kHold, wire::View(), hold);
    outbox_.messages.clear();
    Envelope held;
    held.kind = MessageKind::kLaneHeld;
    held.step = hold;
    control_.OnMessage(held, outbox_);
    ASSERT_EQ(outbox_.messages.size(), 1U);
    ASSERT_EQ(outbox_.messages[0].kind, MessageKind::kHoldings);
    wire::Holdings holdings;
    ASSERT_TRUE(holdings.ParseFromString(outbox_.messages[0].body.ToString()));
    EXPECT_EQ(holdings.complete(), !awaits);
  }
}

// The scheduler may not have heard it: a node that was silent joins anew when it asks for it.
TEST(FinishedWorkerTest, SaysSoAgainWhenItJoinsAgain) {
  const auto plans = std::make_shared<PlanHandover>();
  WorkerProtocol protocol(plans);
  Outbox outbox;
  const auto receive = [&](MessageKind kind) {
    wire::View view;
    view.set_epoch(kBase);
    protocol.Receive(MakeEnvelope(kind, Here(kApplicationLane), view), outbox);
  };
  receive(MessageKind::kJoined);
  protocol.Declare(ModelSpec(), {}, outbox);
  const wire::PlanAndModel plan = OneLayer(0);
  plans->Put(std::make_shared<SyncContext>(plan, std::make_shared<ModelMemory>(plan, false)));
  receive(MessageKind::kPlan);
  protocol.Begin(outbox);
  receive(MessageKind::kStart);
  protocol.Finish({}, outbox);
  const Envelope said = outbox.messages.back();
  ASSERT_EQ(said.kind, MessageKind::kFinished);
  outbox.Clear();
  receive(MessageKind::kJoined);
  ASSERT_EQ(outbox.messages.size(), 1U);
  EXPECT_EQ(outbox.messages[0].kind, MessageKind::kFinished);
  EXPECT_EQ(outbox.messages[0].body.ToString(), said.body.ToString());
}

}  // namespace
}  // namespace poseidon
