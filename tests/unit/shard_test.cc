#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "server/shard_actor.h"

namespace poseidon {
namespace {

constexpr uint64_t kEpoch = 77;

// Two workers; layer "a" of 5 floats in chunks of 3 and 2, of which server 0 has the second, and
// layer "b" under SFB.
wire::PlanAndModel SmallPlan() {
  wire::PlanAndModel plan;
  plan.mutable_plan()->set_workers(2);
  plan.mutable_plan()->set_servers(2);
  plan.mutable_plan()->set_lanes(1);
  plan.mutable_model()->mutable_update_rule()->set_type("SGD");
  plan.mutable_model()->mutable_update_rule()->set_lr_policy("fixed");
  plan.mutable_model()->mutable_update_rule()->set_base_lr(1);
  for (const char* name : {"a", "b"}) {
    LayerPlan* layer = plan.mutable_plan()->add_layers();
    layer->set_name(name);
    layer->set_scheme(*name == 'a' ? PS : SFB);
    for (int c = 0; c < 2; ++c) {
      Chunk* chunk = layer->add_chunks();
      chunk->set_offset(c * 3);
      chunk->set_size(c == 0 ? 3 : 2);
      chunk->set_server(*name == 'a' ? 1 - c : -1);
    }
    BlobSpec* blob = plan.mutable_model()->add_layers()->add_blobs();
    blob->add_shape(5);
    blob->set_lr_mult(1);
  }
  return plan;
}

class ShardTest : public testing::Test {
 protected:
  ShardTest() {
    ShardOptions options;
    options.epoch = kEpoch;
    options.stall_deadline = Seconds(10);
    shard_ = std::make_unique<ShardActor>(SmallPlan(), options);
    shard_->OnStart(outbox_);
  }

  static Envelope Frame(MessageKind kind, int worker, int64_t iteration,
                        std::vector<float> floats) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.from = {{Role::kWorker, worker}, kFirstDataLane};
    envelope.epoch = kEpoch;
    envelope.iteration = iteration;
    envelope.chunk = 1;
    auto owned = std::make_shared<std::vector<float>>(std::move(floats));
    envelope.body = Payload::View(std::span<const float>(*owned), owned);
    return envelope;
  }
  void Receive(const Envelope& envelope) {
    outbox_.Clear();
    shard_->OnMessage(envelope, outbox_);
  }
  // What a scan at `seconds` reports; "" if nothing.
  std::string Scan(double seconds) {
    outbox_.Clear();
    outbox_.now = Seconds(seconds);
    shard_->OnTimer(1, outbox_);
    if (outbox_.messages.empty()) return "";
    EXPECT_EQ(outbox_.messages[0].kind, MessageKind::kLaneStalled);
    wire::Stalled stalled;
    EXPECT_TRUE(stalled.ParseFromString(outbox_.messages[0].body.ToString()));
    std::string text = stalled.waiting_for();
    for (const wire::Node& node : stalled.missing()) text += " " + std::to_string(node.rank());
    return text;
  }

  std::unique_ptr<ShardActor> shard_;
  Outbox outbox_;
};

TEST_F(ShardTest, OwnsOnlyItsChunks) { EXPECT_EQ(shard_->floats(), 2); }

TEST_F(ShardTest, SendsValuesToAllAtTheStartAndAfterTheLastGradient) {
  Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  ASSERT_EQ(outbox_.messages.size(), 2u);
  for (int worker = 0; worker < 2; ++worker) {
    const Envelope& values = outbox_.messages[worker];
    EXPECT_EQ(values.kind, MessageKind::kValues);
    EXPECT_EQ(values.to, (Address{{Role::kWorker, worker}, kFirstDataLane}));
    EXPECT_EQ(values.epoch, kEpoch);
    EXPECT_EQ(values.iteration, 0);
    EXPECT_EQ(values.chunk, 1u);
    EXPECT_EQ(values.priority, 0);
  }
  Receive(Frame(MessageKind::kGradient, 1, 0, {1, 2}));
  EXPECT_TRUE(outbox_.messages.empty());
  Receive(Frame(MessageKind::kGradient, 0, 0, {3, 4}));
  ASSERT_EQ(outbox_.messages.size(), 2u);
  EXPECT_EQ(outbox_.messages[1].iteration, 1);
  float values[2];
  std::memcpy(values, outbox_.messages[1].body.bytes().data(), sizeof values);
  EXPECT_THAT(values, testing::ElementsAre(8, 17));
  EXPECT_EQ(shard_->dropped_frames(), 0);
}

TEST_F(ShardTest, DropsAndCountsWhatDoesNotFit) {
  Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  Receive(Frame(MessageKind::kGradient, 1, 0, {1, 2}));
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
    Receive(odd[i]);
    EXPECT_TRUE(outbox_.messages.empty()) << i;
    EXPECT_EQ(shard_->dropped_frames(), static_cast<int64_t>(i + 1));
  }
  Receive(good);
  EXPECT_EQ(outbox_.messages.size(), 2u);
}

TEST_F(ShardTest, ReportsWhoIsMissingAfterTheStallDeadline) {
  EXPECT_EQ(Scan(5000), "");  // nothing has begun
  Envelope training;
  training.kind = MessageKind::kTraining;
  Receive(training);
  EXPECT_EQ(Scan(5009), "");
  EXPECT_EQ(Scan(5010), "the initial values of layer a 0");
  EXPECT_TRUE(outbox_.timers.empty());  // once is enough
  Receive(Frame(MessageKind::kInitialValues, 0, 0, {10, 20}));
  EXPECT_EQ(Scan(6000), "");  // both compute, as long as they like
  ASSERT_EQ(outbox_.timers.size(), 1u);
  EXPECT_EQ(outbox_.timers[0].delay, Seconds(1));
  Receive(Frame(MessageKind::kGradient, 0, 0, {1, 2}));
  EXPECT_EQ(Scan(6009), "");
  EXPECT_EQ(Scan(6010), "the gradient of layer a, iteration 0, 1");
}

}  // namespace
}  // namespace poseidon
