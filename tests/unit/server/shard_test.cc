#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

// Two workers; bucket "a" of 5 floats in chunks of 3 and 2, of which server 0 has the second, and
// bucket "b" under SFB.
wire::PlanAndModel SmallPlan() {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_servers(2);
  AddBucket(plan, "a", {3, 2}).mutable_chunks(0)->set_server(1);
  BucketPlan& factors = AddBucket(plan, "b", {3, 2});
  factors.set_scheme(SFB);
  for (Chunk& chunk : *factors.mutable_chunks()) chunk.set_server(-1);
  return plan;
}

class ShardTest : public testing::Test {
 protected:
  static Envelope Frame(MessageKind kind, int worker, int64_t iteration, const Floats& floats) {
    return ShardFrame(kind, worker, iteration, Body(floats), 1);
  }

  ShardUnderTest shard_{SmallPlan()};
};

TEST_F(ShardTest, OwnsOnlyItsChunks) { EXPECT_EQ(shard_->floats(), 2); }

TEST_F(ShardTest, SendsValuesToAllAtTheStartAndAfterTheLastGradient) {
  const std::vector<Envelope>& sent =
      shard_.Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  ASSERT_EQ(sent.size(), 2u);
  for (int worker = 0; worker < 2; ++worker) {
    const Envelope& values = sent[worker];
    EXPECT_EQ(values.kind, MessageKind::kValues);
    EXPECT_EQ(values.to, (Address{{Role::kWorker, worker}, kFirstDataLane}));
    EXPECT_EQ(values.epoch, kShardEpoch);
    EXPECT_EQ(values.iteration, 0);
    EXPECT_EQ(values.chunk, 1u);
    EXPECT_EQ(values.priority, 0);
  }
  EXPECT_TRUE(shard_.Receive(Frame(MessageKind::kGradient, 1, 0, {1, 2})).empty());
  shard_.Receive(Frame(MessageKind::kGradient, 0, 0, {3, 4}));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1].iteration, 1);
  // A view, not a copy: both have the same bytes.
  EXPECT_EQ(sent[0].body.bytes().data(), sent[1].body.bytes().data());
  EXPECT_THAT(FloatsOf(sent[1].body), testing::ElementsAre(9, 18.5F));
  EXPECT_EQ(shard_->dropped_frames(), 0);
}

TEST_F(ShardTest, DropsAndCountsWhatDoesNotFit) {
  shard_.Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  shard_.Receive(Frame(MessageKind::kGradient, 1, 0, {1, 2}));
  const Envelope good = Frame(MessageKind::kGradient, 0, 0, {3, 4});
  std::vector<Envelope> odd;
  const auto add = [&](auto change) { change(odd.emplace_back(good)); };
  add([](Envelope& e) { ++e.epoch; });
  add([](Envelope& e) { e.from.node.rank = 1; });  // has been here
  add([](Envelope& e) { e.from.node.rank = 2; });
  add([](Envelope& e) { e.from.node.rank = -1; });
  add([](Envelope& e) { e.from.node.role = Role::kServer; });
  add([](Envelope& e) { e.bucket = 1; });  // no servers there
  add([](Envelope& e) { e.bucket = std::numeric_limits<uint32_t>::max(); });
  add([](Envelope& e) { e.chunk = 0; });  // another server's
  add([](Envelope& e) { e.iteration = -1; });
  add([](Envelope& e) { e.iteration = 1; });
  add([](Envelope& e) { e.body = {}; });
  add([](Envelope& e) { e.kind = MessageKind::kFactors; });
  add([](Envelope& e) { e.kind = MessageKind::kInitialValues; });
  add([](Envelope& e) {
    e.kind = MessageKind::kInitialValues;
    e.from.node.rank = 1;
  });
  for (size_t i = 0; i < odd.size(); ++i) {
    EXPECT_TRUE(shard_.Receive(odd[i]).empty()) << i;
    EXPECT_EQ(shard_->dropped_frames(), static_cast<int64_t>(i + 1));
  }
  EXPECT_EQ(shard_.Receive(good).size(), 2u);
}

TEST_F(ShardTest, ReportsWhoIsMissingAfterTheStallDeadline) {
  EXPECT_EQ(shard_.Scan(5000), "");  // nothing has begun
  Envelope training;
  training.kind = MessageKind::kTraining;
  shard_.Receive(training);
  EXPECT_EQ(shard_.Scan(5009), "");
  EXPECT_EQ(shard_.Scan(5010), "the initial values of layer a 0");
  // Again, as the scheduler that got it may be dead.
  ASSERT_EQ(shard_.outbox().timers.size(), 1u);
  EXPECT_EQ(shard_.Scan(5011), "the initial values of layer a 0");
  shard_.Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  EXPECT_EQ(shard_.Scan(6000), "");  // both compute, as long as they like
  ASSERT_EQ(shard_.outbox().timers.size(), 1u);
  EXPECT_EQ(shard_.outbox().timers[0].delay, Seconds(1));
  shard_.Receive(Frame(MessageKind::kGradient, 0, 0, {1, 2}));
  EXPECT_EQ(shard_.Scan(6009), "");
  EXPECT_EQ(shard_.Scan(6010), "the gradient of layer a, iteration 0, 1");
}

// As when a job is suspended, and goes on later: nobody could send anything in between.
TEST_F(ShardTest, WhileTheProcessStandsStillNobodyIsWaitedFor) {
  shard_.Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  EXPECT_EQ(shard_.Scan(100), "");
  shard_.Receive(Frame(MessageKind::kGradient, 0, 0, {1, 2}));
  EXPECT_EQ(shard_.Scan(105), "");
  EXPECT_EQ(shard_.LateScan(1105), "") << "after a stop of 999 s";
  EXPECT_EQ(shard_.Scan(1108), "");
  EXPECT_EQ(shard_.Scan(1109), "the gradient of layer a, iteration 0, 1");
  // Stops again and again put it off for no longer than they take.
  shard_.Receive(Frame(MessageKind::kGradient, 1, 0, {1, 2}));
  shard_.Receive(Frame(MessageKind::kGradient, 0, 1, {1, 2}));
  for (int stop = 1; stop < 10; ++stop) EXPECT_EQ(shard_.LateScan(1109 + 500 * stop), "") << stop;
  EXPECT_EQ(shard_.LateScan(1109 + 500 * 10), "the gradient of layer a, iteration 1, 1");
}

// Also before the first scan. And what is received before the late one waits since then.
TEST_F(ShardTest, WhoeverHangsAfterAStopIsNamedInTime) {
  shard_.Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  shard_.Receive(Frame(MessageKind::kGradient, 0, 0, {1, 2}));
  EXPECT_EQ(shard_.LateScan(1000), "");
  shard_.Receive(Frame(MessageKind::kGradient, 1, 0, {1, 2}));
  shard_.Sleep(1000);
  shard_.Receive(Frame(MessageKind::kGradient, 0, 1, {1, 2}));
  EXPECT_EQ(shard_.Scan(2009.5), "");
  EXPECT_EQ(shard_.Scan(2010), "the gradient of layer a, iteration 1, 1");
}

TEST(ShardBucketsTest, BucketsOfSeveralLayersHaveNamePriorityAndEachBlobItsMultipliers) {
  for (const bool fifo : {false, true}) {
    wire::PlanAndModel plan = EmptyPlan(1);
    plan.mutable_plan()->set_fifo(fifo);
    AddBucket(plan, "first", {1});
    // Three floats of one layer, two of the next, cut after the fourth.
    BucketPlan& bucket = AddBucket(plan, "a..b", {3, 2});
    bucket.set_layer_count(2);
    bucket.mutable_chunks(0)->set_size(4);
    bucket.mutable_chunks(1)->set_offset(4);
    bucket.mutable_chunks(1)->set_size(1);
    plan.mutable_model()->mutable_layers(1)->mutable_blobs(0)->set_shape(0, 3);
    BlobSpec* blob = plan.mutable_model()->add_layers()->add_blobs();
    blob->add_shape(2);
    blob->set_lr_mult(2);
    ShardUnderTest shard(plan);
    EXPECT_EQ(shard->floats(), 6);
    Envelope training;
    training.kind = MessageKind::kTraining;
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
    shard.Receive(training);
    EXPECT_EQ(shard.Scan(10), "the initial values of layers a..b 0");
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0, 0, 0, 0}), 0, 1));
    shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0}), 1, 1));
    const std::vector<Envelope>& sent =
        shard.Receive(ShardFrame(MessageKind::kGradient, 0, 0, Body({1, 1, 1, 1}), 0, 1));
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].priority, fifo ? 0 : 1);
    EXPECT_THAT(FloatsOf(sent[0].body), testing::ElementsAre(-0.5F, -0.5F, -0.5F, -1));
    shard.Receive(ShardFrame(MessageKind::kGradient, 0, 0, Body({1}), 1, 1));
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_THAT(FloatsOf(sent[0].body), testing::ElementsAre(-1));
  }
}

// The deadline counts from when the slowest were last waited for.
TEST(ShardBucketsTest, UnderStalenessWaitingBeginsWithTheUpdateBefore) {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_plan()->set_staleness(1);
  AddBucket(plan, "a", {1});
  ShardUnderTest shard(plan);
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
  EXPECT_EQ(shard.Receive(ShardFrame(MessageKind::kGradient, 1, 0, Body({1}))).size(), 1u);
  EXPECT_TRUE(shard.Receive(ShardFrame(MessageKind::kGradient, 1, 1, Body({1}))).empty());
  EXPECT_EQ(shard.Scan(9), "");
  EXPECT_EQ(shard.Receive(ShardFrame(MessageKind::kGradient, 0, 0, Body({1}))).size(), 2u);
  EXPECT_EQ(shard.Scan(18), "");
  EXPECT_EQ(shard.Scan(19), "the gradient of layer a, iteration 1, 0");
}

}  // namespace
}  // namespace poseidon
