// A WorkerProtocol that a test leads by hand.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/worker_protocol.h"
#include "proto/update_rule_message.h"

namespace poseidon {

class WorkerProtocolTest : public testing::Test {
 protected:
  using Phase = WorkerProtocol::Phase;

  static constexpr uint64_t kEpoch = 77;
  static constexpr int kLanes = 2;

  explicit WorkerProtocolTest(int rank = 0) : rank_(rank) {}

  // Two layers of 3 and 5 parameters under PS, each in a bucket with one KV pair, on lanes 0 and 1.
  static wire::PlanAndModel TwoLayers(int number, int64_t start, bool at_workers) {
    wire::PlanAndModel plan;
    ModelSpec& model = *plan.mutable_model();
    model.set_batch(1);
    model.mutable_update_rule()->set_type("SGD");
    model.mutable_update_rule()->set_lr_policy("fixed");
    model.mutable_update_rule()->set_momentum(0.9F);
    plan.mutable_plan()->set_lanes(kLanes);
    plan.mutable_plan()->set_workers(2);
    plan.mutable_plan()->set_servers(1);
    plan.mutable_plan()->set_number(number);
    plan.mutable_plan()->set_start_iteration(start);
    for (int l = 0; l < 2; ++l) {
      LayerSpec& layer = *model.add_layers();
      layer.set_name("layer" + std::to_string(l));
      BlobSpec& blob = *layer.add_blobs();
      blob.add_shape(l == 0 ? 3 : 5);
      blob.set_lr_mult(1);
      BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
      bucket.set_name(layer.name());
      bucket.set_first_layer(l);
      bucket.set_layer_count(1);
      bucket.set_scheme(PS);
      bucket.set_update_at_workers(at_workers);
      Chunk& chunk = *bucket.add_chunks();
      chunk.set_size(blob.shape(0));
      chunk.set_lane(l);
    }
    return plan;
  }

  // What a server keeps of the bucket, `each` for each parameter.
  static Envelope StateOf(int bucket, float each) {
    auto floats = std::make_shared<std::vector<float>>(bucket == 0 ? 3 : 5, each);
    Envelope state;
    state.kind = MessageKind::kOptimizerState;
    state.epoch = kEpoch;
    state.bucket = static_cast<uint32_t>(bucket);
    state.body = Payload::View(std::span<const float>(*floats), floats);
    return state;
  }

  Envelope Message(MessageKind kind, int64_t iteration = 0) const {
    Envelope envelope;
    envelope.kind = kind;
    envelope.iteration = iteration;
    return envelope;
  }
  void Receive(const Envelope& envelope) { protocol_.Receive(envelope, outbox_); }
  // What has been sent since the last call.
  std::vector<MessageKind> Sent() {
    std::vector<MessageKind> kinds;
    for (const Envelope& envelope : outbox_.messages) kinds.push_back(envelope.kind);
    sent_ = std::move(outbox_.messages);
    outbox_.messages.clear();
    return kinds;
  }

  void Join(uint64_t epoch = kEpoch) {
    wire::View view;
    view.set_epoch(epoch);
    view.set_your_rank(rank_);
    Receive(MakeEnvelope(MessageKind::kJoined, Here(kApplicationLane), view));
  }
  // In `memory` of the plan before, if it goes on there.
  void GivePlan(const wire::PlanAndModel& plan,
                std::shared_ptr<const ModelMemory> memory = nullptr) {
    const bool goes_on = memory != nullptr;
    if (!goes_on) memory = std::make_shared<ModelMemory>(plan, false);
    auto context = std::make_shared<SyncContext>(plan, std::move(memory));
    context->place = rank_;
    if (recovers_ && goes_on) {
      context->kept = protocol_.context().kept;
    } else if (recovers_) {
      context->kept = std::make_shared<KeptState>(std::make_shared<wire::PlanAndModel>(plan),
                                                  context->memory, true);
    }
    context->epoch = kEpoch + static_cast<uint64_t>(plan.plan().number());
    plans_->Put(std::move(context));
    Receive(Message(MessageKind::kPlan));
  }
  // Up to the first iteration of the first plan.
  void StartTraining(bool at_workers = true) {
    Join();
    protocol_.Declare(ModelSpec(), {}, outbox_);
    GivePlan(TwoLayers(0, 0, at_workers));
    protocol_.Begin(outbox_);
    Receive(Message(MessageKind::kStart));
    Sent();
  }
  Envelope Fresh(int bucket, int64_t iteration, uint64_t epoch = kEpoch) const {
    Envelope fresh = Message(MessageKind::kBucketFresh, iteration);
    fresh.bucket = static_cast<uint32_t>(bucket);
    fresh.epoch = epoch;
    return fresh;
  }
  // Both layers are fresh, computed, and their gradients handed over.
  void Iterate() {
    for (int bucket = 0; bucket < 2; ++bucket) Receive(Fresh(bucket, protocol_.iteration()));
    ASSERT_TRUE(protocol_.AllFresh());
    for (int layer = 1; layer >= 0; --layer) {
      protocol_.GradientReady(layer, protocol_.iteration(), Time(), outbox_);
    }
  }
  void EndIteration(int64_t total = 0) {
    wire::Progress progress;
    progress.set_total_iterations(total);
    protocol_.EndIteration(std::move(progress), outbox_);
  }

  // Iterations of the reports among what was sent by the last call of Sent.
  std::vector<int64_t> Reported() const {
    std::vector<int64_t> iterations;
    for (const Envelope& envelope : sent_) {
      wire::Progress progress;
      if (envelope.kind != MessageKind::kProgress) continue;
      EXPECT_TRUE(progress.ParseFromString(envelope.body.ToString()));
      iterations.push_back(progress.iteration());
    }
    return iterations;
  }

  int rank_;
  bool recovers_ = false;
  std::shared_ptr<PlanHandover> plans_ = std::make_shared<PlanHandover>();
  WorkerProtocol protocol_{plans_};
  Outbox outbox_;
  std::vector<Envelope> sent_;
};

}  // namespace poseidon
