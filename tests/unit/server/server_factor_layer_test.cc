// The scheme ADAM's server side: factors in, the whole layer's values out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "core/arithmetic/rebuild.h"
#include "proto/update_rule_message.h"
#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

struct Case {
  int workers = 2;
  int64_t outputs = 2;
  int64_t inputs = 3;
  int64_t rows = 2;
  bool bias = true;
  std::vector<int64_t> chunks;

  int64_t floats() const { return outputs * inputs + (bias ? outputs : 0); }
};

wire::PlanAndModel AdamPlan(const Case& shape) {
  wire::PlanAndModel plan = EmptyPlan(shape.workers);
  AddBucket(plan, "other", {1});
  AddBucket(plan, "fc", shape.chunks).set_scheme(ADAM);
  LayerSpec& layer = *plan.mutable_model()->mutable_layers(1);
  layer.mutable_inner_product()->set_outputs(shape.outputs);
  layer.mutable_inner_product()->set_inputs(shape.inputs);
  layer.mutable_inner_product()->set_rows(shape.rows);
  layer.mutable_blobs(0)->set_shape(0, shape.outputs * shape.inputs);
  if (shape.bias) {
    BlobSpec* bias = layer.add_blobs();
    bias->add_shape(shape.outputs);
    bias->set_lr_mult(2);
  }
  return plan;
}

Case RandomCase(std::mt19937& random) {
  const auto roll = [&](int64_t most) { return 1 + static_cast<int64_t>(random() % most); };
  Case shape{static_cast<int>(roll(5)), roll(9), roll(9), roll(4), random() % 2 == 0, {}};
  for (int64_t left = shape.floats(); left > 0; left -= shape.chunks.back()) {
    shape.chunks.push_back(roll(left));
  }
  return shape;
}

// Bucket 1 is the layer.
Envelope FactorFrame(int worker, int64_t iteration, uint32_t factor, const Floats& floats) {
  return ShardFrame(MessageKind::kFactors, worker, iteration, Body(floats), factor, 1);
}

// Publishes the values; checks that each chunk comes back to all.
void Publish(ShardUnderTest& shard, const Case& shape, const Floats& values) {
  int64_t offset = 0;
  for (uint32_t chunk = 0; chunk < shape.chunks.size(); ++chunk) {
    const Floats part(values.begin() + offset, values.begin() + offset + shape.chunks[chunk]);
    const auto& sent =
        shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(part), chunk, 1));
    ASSERT_EQ(sent.size(), static_cast<size_t>(shape.workers));
    EXPECT_EQ(sent.back().chunk, chunk);
    EXPECT_EQ(sent.back().iteration, 0);
    EXPECT_EQ(FloatsOf(sent.back().body), part);
    offset += shape.chunks[chunk];
  }
}

// What an answer of all chunks to all workers makes of the layer.
Floats Collect(const std::vector<Envelope>& sent, const Case& shape, int64_t iteration) {
  EXPECT_EQ(sent.size(), shape.chunks.size() * shape.workers);
  std::vector<Floats> layers(shape.workers);
  for (const Envelope& answer : sent) {
    EXPECT_EQ(answer.kind, MessageKind::kValues);
    EXPECT_EQ(answer.bucket, 1u);
    EXPECT_EQ(answer.priority, PriorityOf(false, 2, 1, iteration - 1));
    EXPECT_EQ(answer.iteration, iteration);
    const Floats part = FloatsOf(answer.body);
    EXPECT_EQ(part.size(), static_cast<size_t>(shape.chunks[answer.chunk]));
    Floats& layer = layers[answer.to.node.rank];
    layer.insert(layer.end(), part.begin(), part.end());  // chunks come in their order
  }
  for (const Floats& layer : layers) EXPECT_EQ(layer, layers[0]);
  return layers[0];
}

TEST(FactorLayerTest, IsTheRebuiltGradientAndTheUpdateRule) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Case shape = RandomCase(random);
    const wire::PlanAndModel plan = AdamPlan(shape);
    const UpdateRule rule = ToUpdateRule(plan.model().update_rule());
    ShardUnderTest shard(plan);
    EXPECT_EQ(shard->floats(), 1 + shape.floats());
    Floats values = RandomFloats(shape.floats(), random);
    Floats optimizer_state(shape.floats());
    Publish(shard, shape, values);
    int64_t duplicates = 0;
    for (int64_t iteration = 0; iteration < 4; ++iteration) {
      const Floats u = RandomFloats(shape.workers * shape.rows * shape.outputs, random);
      const Floats v = RandomFloats(shape.workers * shape.rows * shape.inputs, random);
      std::vector<Envelope> frames;
      for (int worker = 0; worker < shape.workers; ++worker) {
        for (const uint32_t factor : {0u, 1u}) {
          const Floats& stack = factor == 0 ? u : v;
          const auto size = static_cast<int64_t>(stack.size()) / shape.workers;
          frames.push_back(FactorFrame(
              worker, iteration, factor,
              Floats(stack.begin() + worker * size, stack.begin() + (worker + 1) * size)));
        }
      }
      std::shuffle(frames.begin(), frames.end(), random);
      std::vector<Envelope> sent;
      for (size_t i = 0; i < frames.size(); ++i) {
        EXPECT_TRUE(sent.empty());
        sent = shard.Receive(frames[i]);
        if (random() % 3 == 0) {
          ++duplicates;
          EXPECT_TRUE(shard.Receive(frames[random() % (i + 1)]).empty());
        }
      }
      Floats gradient(shape.floats());
      RebuildGradient(shape.outputs, shape.inputs, u, v, gradient);
      UpdateSegmentwise(
          rule, iteration, UpdateSegments(plan.model(), plan.plan().buckets(1), 0, shape.floats()),
          gradient, 1.0F / static_cast<float>(shape.workers), values, optimizer_state);
      ASSERT_EQ(Collect(sent, shape, iteration + 1), values);
    }
    EXPECT_EQ(shard->dropped_frames(), duplicates);
  }
}

// By hand: u^T v of two workers, one row each, and u's sums for the bias with twice the rate.
TEST(FactorLayerTest, SumsOverWorkers) {
  const Case shape{2, 2, 2, 1, true, {6}};
  ShardUnderTest shard(AdamPlan(shape));
  Publish(shard, shape, Floats(6));
  shard.Receive(FactorFrame(1, 0, 1, {1, 0}));
  shard.Receive(FactorFrame(0, 0, 0, {1, 2}));
  shard.Receive(FactorFrame(1, 0, 0, {4, 8}));
  const auto& sent = shard.Receive(FactorFrame(0, 0, 1, {3, 5}));
  // The sums are 7 5 14 10, and 5 10 for the bias.
  EXPECT_THAT(Collect(sent, shape, 1),
              testing::ElementsAre(-1.75F, -1.25F, -3.5F, -2.5F, -2.5F, -5));
}

TEST(FactorLayerTest, DropsAndCountsWhatDoesNotFit) {
  const Case shape{2, 2, 3, 1, false, {4, 2}};
  ShardUnderTest shard(AdamPlan(shape));
  int64_t dropped = 0;
  const auto expect_dropped = [&](const Envelope& frame) {
    EXPECT_TRUE(shard.Receive(frame).empty());
    EXPECT_EQ(shard->dropped_frames(), ++dropped);
  };
  const Envelope good = FactorFrame(1, 0, 0, {1, 2});
  expect_dropped(good);  // there are no values yet
  expect_dropped(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(6)), 0, 1));
  expect_dropped(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(4)), 2, 1));
  expect_dropped(ShardFrame(MessageKind::kInitialValues, 1, 0, Body(Floats(4)), 0, 1));
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(4)), 0, 1));
  expect_dropped(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(4)), 0, 1));
  expect_dropped(good);  // half of them
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body(Floats(2)), 1, 1));
  const auto expect_odd = [&](auto change) {
    Envelope frame = good;
    change(frame);
    expect_dropped(frame);
  };
  expect_odd([](Envelope& e) { ++e.epoch; });
  expect_odd([](Envelope& e) { e.from.node.rank = 2; });
  expect_odd([](Envelope& e) { e.from.node.role = Role::kServer; });
  expect_odd([](Envelope& e) { e.chunk = 1; });  // v is longer
  expect_odd([](Envelope& e) { e.chunk = 2; });
  expect_odd([](Envelope& e) { e.chunk = std::numeric_limits<uint32_t>::max(); });
  expect_odd([](Envelope& e) { e.iteration = 1; });
  expect_odd([](Envelope& e) { e.iteration = -1; });
  expect_odd([](Envelope& e) { e.body = {}; });
  expect_odd([](Envelope& e) { e.kind = MessageKind::kGradient; });
  expect_odd([](Envelope& e) { e.bucket = 0; });  // a KV pair
  EXPECT_TRUE(shard.Receive(good).empty());
  EXPECT_EQ(shard->dropped_frames(), dropped);
  expect_dropped(good);
}

TEST(FactorLayerTest, ReportsWhoseFactorsAreMissing) {
  const Case shape{3, 2, 2, 1, false, {4}};
  ShardUnderTest shard(AdamPlan(shape));
  shard.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0})));
  Envelope training;
  training.kind = MessageKind::kTraining;
  shard.Receive(training);
  EXPECT_EQ(shard.Scan(10), "the initial values of layer fc 0");
  Publish(shard, shape, Floats(4));
  EXPECT_EQ(shard.Scan(100), "");
  for (const uint32_t factor : {0u, 1u}) shard.Receive(FactorFrame(1, 0, factor, {1, 2}));
  shard.Receive(FactorFrame(2, 0, 0, {1, 2}));
  EXPECT_EQ(shard.Scan(110), "the gradient of layer fc, iteration 0, 0 2");
}

TEST(FactorLayerTest, PhantomsCountAndHoldNothing) {
  const Case shape{2, 20, 30, 4, true, {600, 20}};
  ShardUnderTest shard(AdamPlan(shape), true);
  const auto frame = [](MessageKind kind, int worker, int64_t iteration, int64_t floats,
                        uint32_t chunk) {
    return ShardFrame(kind, worker, iteration, Payload::Phantom(floats * sizeof(float)), chunk, 1);
  };
  shard.Receive(frame(MessageKind::kInitialValues, 0, 0, 600, 0));
  EXPECT_EQ(shard.Receive(frame(MessageKind::kInitialValues, 0, 0, 20, 1)).size(), 2u);
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    std::vector<Envelope> sent;
    for (const int worker : {1, 0}) {
      shard.Receive(frame(MessageKind::kFactors, worker, iteration, 80, 0));
      sent = shard.Receive(frame(MessageKind::kFactors, worker, iteration, 120, 1));
    }
    ASSERT_EQ(sent.size(), 4u);
    EXPECT_TRUE(sent[0].body.phantom());
    EXPECT_EQ(sent[0].body.size() + sent[2].body.size(), 620 * sizeof(float));
    EXPECT_EQ(sent[0].iteration, iteration + 1);
  }
  EXPECT_EQ(shard->dropped_frames(), 0);
}

}  // namespace
}  // namespace poseidon
