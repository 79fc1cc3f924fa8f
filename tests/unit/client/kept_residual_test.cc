// What a worker goes back to where a codec keeps a part of the gradients, and where updates are
// deferred.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "client/sync/gradient_buffers.h"
#include "client/sync/kept_state.h"
#include "client/sync/syncer.h"
#include "tests/unit/client/worker_protocol_fixture.h"

namespace poseidon {
namespace {

constexpr int64_t kChunk = 5;
constexpr int64_t kFloats = 15;

// Layers of 6 and 9 floats in one bucket of three chunks, the second of which has floats of both.
std::shared_ptr<const wire::PlanAndModel> TwoLayers(WireCodec codec, bool deferred) {
  auto plan = std::make_shared<wire::PlanAndModel>();
  UpdateRuleSpec& rule = *plan->mutable_model()->mutable_update_rule();
  rule.set_type("SGD");
  rule.set_base_lr(0.1F);
  rule.set_lr_policy("fixed");
  rule.set_momentum(0.9F);
  rule.set_deferred(deferred);
  for (const int64_t floats : {6, 9}) {
    BlobSpec& blob = *plan->mutable_model()->add_layers()->add_blobs();
    blob.add_shape(floats);
    blob.set_lr_mult(1);
  }
  plan->mutable_plan()->set_workers(2);
  plan->mutable_plan()->set_lanes(1);
  BucketPlan& bucket = *plan->mutable_plan()->add_buckets();
  bucket.set_layer_count(2);
  bucket.set_scheme(PS);
  bucket.set_codec(codec);
  bucket.set_update_at_workers(true);
  for (int64_t offset = 0; offset < kFloats; offset += kChunk) {
    Chunk& chunk = *bucket.add_chunks();
    chunk.set_offset(offset);
    chunk.set_size(kChunk);
  }
  return plan;
}

class KeptResidualTest : public testing::Test {
 protected:
  void MakeContext(WireCodec codec, bool deferred, uint64_t seed) {
    random_.seed(seed);
    const auto plan = TwoLayers(codec, deferred);
    context_ = std::make_unique<SyncContext>(
        plan, std::make_shared<ModelMemory>(
                  *plan, ModelMemory::Options{.phantom = false, .recovers = true, .devices = {}}));
    context_->kept = std::make_shared<KeptState>(plan, context_->memory, false);
    Fill(memory().values);
    context_->kept->AllArrived(0);
  }

  const BucketMemory& memory() const { return context_->memory->bucket(0); }
  KeptState& kept() const { return *context_->kept; }

  void Fill(std::span<float> floats) {
    for (float& value : floats) value = static_cast<float>(random_() % 1000) / 1000.0F - 0.5F;
  }

  void Send(int chunk, int64_t iteration) {
    kept().BeforeSend(0, chunk, iteration);
    Fill(memory().residual.subspan(chunk * kChunk, kChunk));
  }

  void Update(int chunk, int64_t iteration) {
    std::vector<float> gradient(kChunk);
    Fill(gradient);
    context_->Keep(0, iteration, chunk * kChunk, kChunk);
    context_->UpdateRange(0, iteration, chunk * kChunk, gradient, 1);
  }

  // Of a deferred rule.
  void MakeUpdate(int layer, int64_t iteration) {
    for (float& value : context_->memory->values(layer)) value *= 0.5F;
    kept().Updated(layer, iteration);
  }

  static std::vector<float> Copy(std::span<const float> floats) {
    return {floats.begin(), floats.end()};
  }

  std::mt19937_64 random_;
  std::unique_ptr<SyncContext> context_;
};

// A chunk may have sent none of the gradients of the iteration and the next one, one, or both.
TEST_F(KeptResidualTest, GoesBackByUpToTwoGradients) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    MakeContext(seed % 2 == 0 ? ONE_BIT : TOP_K, false, seed);
    const auto iterations = static_cast<int64_t>(random_() % 4);
    for (int64_t t = 0; t < iterations; ++t) {
      for (int chunk = 0; chunk < 3; ++chunk) Send(chunk, t);
      for (int chunk = 0; chunk < 3; ++chunk) Update(chunk, t);
    }
    const std::vector<float> residual = Copy(memory().residual);
    const std::vector<float> values = Copy(memory().values);
    for (int chunk = 0; chunk < 3; ++chunk) {
      const uint64_t progress = random_() % 4;
      if (progress > 0) Send(chunk, iterations);
      if (progress > 1) Update(chunk, iterations);
      if (progress > 2) Send(chunk, iterations + 1);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      kept().GoBack(iterations);
      EXPECT_EQ(Copy(memory().residual), residual);
      EXPECT_EQ(Copy(memory().values), values);
    }
    // And on from there.
    for (int chunk = 0; chunk < 3; ++chunk) Send(chunk, iterations);
    EXPECT_NE(Copy(memory().residual), residual);
    kept().GoBack(iterations);
    EXPECT_EQ(Copy(memory().residual), residual);
  }
}

TEST_F(KeptResidualTest, ADeferredUpdateMakesTheVersion) {
  MakeContext(FP32, true, 1);
  for (int chunk = 0; chunk < 3; ++chunk) Update(chunk, 0);
  EXPECT_EQ(kept().OldestVersion(), 0);
  MakeUpdate(0, 1);
  EXPECT_EQ(kept().OldestVersion(), 0);
  MakeUpdate(1, 1);
  EXPECT_EQ(kept().OldestVersion(), 1);
}

// Also where some layers had theirs.
TEST_F(KeptResidualTest, GoesBackBeforeDeferredUpdates) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    MakeContext(FP32, true, seed);
    for (int chunk = 0; chunk < 3; ++chunk) Update(chunk, 0);
    for (int layer = 0; layer < 2; ++layer) MakeUpdate(layer, 1);
    const std::vector<float> values = Copy(memory().values);
    for (int chunk = 0; chunk < 3; ++chunk) Update(chunk, 1);
    EXPECT_EQ(Copy(memory().values), values) << "not before the update is made";
    for (int layer = 0; layer < 2; ++layer) {
      if (random_() % 2 == 0) MakeUpdate(layer, 2);
    }
    kept().GoBack(1);
    EXPECT_EQ(Copy(memory().values), values);
    EXPECT_EQ(kept().OldestVersion(), 1);
  }
}

// A worker whose codec has something left when the job goes over to a plan without a codec.
class OwedResidualTest : public WorkerProtocolTest {
 protected:
  static constexpr int64_t kStart = 1;  // of that plan
  static constexpr float kOwed = 0.5F;

  OwedResidualTest() : WorkerProtocolTest(1) { recovers_ = true; }

  static wire::PlanAndModel PlanOf(int number, int64_t start, Scheme scheme, WireCodec codec) {
    wire::PlanAndModel plan = TwoLayers(number, start, true);
    for (LayerSpec& layer : *plan.mutable_model()->mutable_layers()) {
      InnerProductSpec& product = *layer.mutable_inner_product();
      product.set_outputs(1);
      product.set_inputs(layer.blobs(0).shape(0));
      product.set_rows(1);
    }
    for (BucketPlan& bucket : *plan.mutable_plan()->mutable_buckets()) {
      bucket.set_scheme(scheme);
      bucket.set_codec(codec);
    }
    return plan;
  }

  // All that the plan starts with is here.
  void Begin(int number, int64_t start) {
    protocol_.Begin(outbox_);
    Envelope begin = Message(MessageKind::kStart);
    begin.step = static_cast<uint32_t>(number);
    Receive(begin);
    protocol_.context().kept->AllArrived(start);
    ASSERT_EQ(protocol_.phase(), Phase::kTraining);
  }

  void GoOverTo(Scheme scheme) {
    Join();
    protocol_.Declare(ModelSpec(), {}, outbox_);
    GivePlan(PlanOf(0, 0, PS, INT8));
    Begin(0, 0);
    Receive(Message(MessageKind::kPauseRequest));
    Receive(Message(MessageKind::kPauseAt, kStart));
    Iterate();
    EndIteration();
    for (int bucket = 0; bucket < 2; ++bucket) {
      Receive(Fresh(bucket, kStart));
      std::ranges::fill(protocol_.context().memory->bucket(bucket).residual, kOwed);
    }
    protocol_.LeavePlan(outbox_);
    GivePlan(PlanOf(1, kStart, scheme, FP32));
    Begin(1, kStart);
  }

  // After a hold of the plan before.
  void GoBackTo(int64_t start, int number, Scheme scheme, bool same_memory) {
    Receive(Message(MessageKind::kHold, number - 1));
    wire::PlanAndModel plan = PlanOf(number, start, scheme, FP32);
    for (const int place : {0, 1}) plan.mutable_plan()->add_holders(place);
    GivePlan(plan, same_memory ? protocol_.context().memory : nullptr);
    Begin(number, start);
  }

  // The least and the greatest float that the layer sends of a gradient of ones.
  std::pair<float, float> SentOfOnes(int layer) {
    const int64_t iteration = protocol_.iteration();
    const std::span<float> gradient =
        GradientBuffersOf(protocol_.context(), layer, iteration).dense;
    std::ranges::fill(gradient, 1.0F);
    protocol_.GradientReady(layer, iteration, Time(), outbox_);
    const auto [least, greatest] = std::ranges::minmax(gradient);
    return {least, greatest};
  }
};

constexpr std::pair<float, float> kAlone(1.0F, 1.0F);
constexpr std::pair<float, float> kWithWhatWasOwed(1.5F, 1.5F);

TEST_F(OwedResidualTest, WaitsForADenseGradientThroughAnyHold) {
  GoOverTo(SFB);
  ASSERT_TRUE(protocol_.HasResidual(0));
  GoBackTo(kStart, 2, SFB, true);
  EXPECT_TRUE(protocol_.HasResidual(0));
  GoBackTo(kStart, 3, SFB, false);
  EXPECT_TRUE(protocol_.HasResidual(0));
  GoBackTo(kStart, 4, RING, false);
  for (const int layer : {1, 0}) EXPECT_EQ(SentOfOnes(layer), kWithWhatWasOwed);
}

TEST_F(OwedResidualTest, IsAddedAgainWhereTheGradientIsComputedAgain) {
  GoOverTo(RING);
  EXPECT_EQ(SentOfOnes(0), kWithWhatWasOwed);
  for (const bool same_memory : {true, false}) {
    GoBackTo(kStart, same_memory ? 2 : 3, RING, same_memory);
    EXPECT_EQ(SentOfOnes(0), kWithWhatWasOwed);
    EXPECT_EQ(SentOfOnes(0), kAlone);
  }
}

// Also when the worker has sent the gradient of the iteration after it.
TEST_F(OwedResidualTest, IsAddedOnceToWhatStays) {
  GoOverTo(RING);
  EXPECT_EQ(SentOfOnes(0), kWithWhatWasOwed);
  EndIteration();
  EXPECT_EQ(SentOfOnes(0), kAlone);
  EndIteration();
  GoBackTo(kStart, 2, RING, true);
  EXPECT_EQ(SentOfOnes(0), kWithWhatWasOwed);
  EndIteration();
  protocol_.context().kept->AllArrived(kStart + 1);
  GoBackTo(kStart + 1, 3, RING, true);
  EXPECT_EQ(SentOfOnes(0), kAlone);
}

}  // namespace
}  // namespace poseidon
