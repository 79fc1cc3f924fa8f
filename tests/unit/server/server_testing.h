// Frames to and from a ShardActor without a runtime.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "server/shard_actor.h"
#include "tests/unit/work_testing.h"

namespace poseidon {

using Floats = std::vector<float>;

constexpr uint64_t kShardEpoch = 77;

inline Payload Body(const Floats& floats) {
  auto owned = std::make_shared<Floats>(floats);
  return Payload::View(std::span<const float>(*owned), owned);
}

inline Floats FloatsOf(const Payload& body) {
  Floats floats(body.size() / sizeof(float));
  if (!floats.empty()) std::memcpy(floats.data(), body.bytes().data(), body.size());
  return floats;
}

// In [-1, 1).
inline Floats RandomFloats(int64_t count, std::mt19937& random) {
  Floats floats(count);
  for (float& value : floats) value = std::uniform_real_distribution<float>(-1, 1)(random);
  return floats;
}

// Of one server with one lane; SGD with base_lr 0.5 and momentum 0.5, exact in binary.
inline wire::PlanAndModel EmptyPlan(int workers) {
  wire::PlanAndModel plan;
  plan.mutable_plan()->set_workers(workers);
  plan.mutable_plan()->set_servers(1);
  plan.mutable_plan()->set_lanes(1);
  UpdateRuleSpec* rule = plan.mutable_model()->mutable_update_rule();
  rule->set_type("SGD");
  rule->set_lr_policy("fixed");
  rule->set_base_lr(0.5F);
  rule->set_momentum(0.5F);
  return plan;
}

// Adds a layer of one blob and a bucket of it under PS, in chunks of the given sizes on server 0.
inline BucketPlan& AddBucket(wire::PlanAndModel& plan, const std::string& name,
                             const std::vector<int64_t>& chunks) {
  BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
  bucket.set_name(name);
  bucket.set_first_layer(plan.model().layers_size());
  bucket.set_layer_count(1);
  bucket.set_scheme(PS);
  int64_t offset = 0;
  for (const int64_t size : chunks) {
    Chunk* chunk = bucket.add_chunks();
    chunk->set_offset(offset);
    chunk->set_size(size);
    offset += size;
  }
  LayerSpec* layer = plan.mutable_model()->add_layers();
  layer->set_name(name);
  BlobSpec* blob = layer->add_blobs();
  blob->add_shape(offset);
  blob->set_lr_mult(1);
  blob->set_decay_mult(1);
  return bucket;
}

inline Envelope ShardFrame(MessageKind kind, int worker, int64_t iteration, Payload body,
                           uint32_t chunk = 0, uint32_t bucket = 0) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.from = {{Role::kWorker, worker}, kFirstDataLane};
  envelope.epoch = kShardEpoch;
  envelope.iteration = iteration;
  envelope.bucket = bucket;
  envelope.chunk = chunk;
  envelope.body = std::move(body);
  return envelope;
}

// Server 0's first lane.
class ShardUnderTest {
 public:
  explicit ShardUnderTest(const wire::PlanAndModel& plan, bool phantom = false) {
    ShardOptions options;
    options.epoch = kShardEpoch;
    options.stall_deadline = 10 * kScanInterval;
    options.phantom = phantom;
    shard_ = std::make_unique<ShardActor>(plan, options);
    shard_->OnStart(outbox_);
  }

  // What it sends, also when it has done the work that it leaves.
  std::vector<Envelope>& Receive(const Envelope& envelope) {
    outbox_.Clear();
    shard_->OnMessage(envelope, outbox_);
    FinishWork(outbox_);
    return outbox_.messages;
  }
  // What the scan at `seconds` reports, to which all others have come in time; "" if nothing.
  std::string Scan(double seconds) {
    while (outbox_.now + kScanInterval < Seconds(seconds)) {
      LateScan(ToSeconds(outbox_.now + kScanInterval));
    }
    return LateScan(seconds);
  }
  // Nothing is handled in between, as where the process stands still.
  void Sleep(double seconds) { outbox_.now += Seconds(seconds); }
  // Likewise, where the process stood still before it.
  std::string LateScan(double seconds) {
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
  ShardActor& operator*() { return *shard_; }
  ShardActor* operator->() { return shard_.get(); }
  const Outbox& outbox() const { return outbox_; }

 private:
  static constexpr Duration kScanInterval = Seconds(1);

  std::unique_ptr<ShardActor> shard_;
  Outbox outbox_;
};

}  // namespace poseidon
