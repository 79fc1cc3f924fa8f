// What memory a worker has where devices do a part of its work.
#include "client/sync/model_memory.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

constexpr int kOutputs = 30, kInputs = 50;
constexpr int64_t kParameters = kOutputs * (kInputs + 1);

// Two workers, one inner product under SFB.
wire::PlanAndModel FactorPlan(const std::string& rule, bool deferred) {
  wire::PlanAndModel plan;
  LayerSpec& layer = *plan.mutable_model()->add_layers();
  layer.mutable_inner_product()->set_outputs(kOutputs);
  layer.mutable_inner_product()->set_inputs(kInputs);
  layer.mutable_inner_product()->set_rows(4);
  for (const int64_t floats : {kOutputs * kInputs, kOutputs}) layer.add_blobs()->add_shape(floats);
  UpdateRuleSpec& update = *plan.mutable_model()->mutable_update_rule();
  update.set_type(rule);
  if (rule == "SGD") {
    update.set_lr_policy("fixed");
    update.set_momentum(0.9F);
  }
  update.set_deferred(deferred);
  plan.mutable_plan()->set_workers(2);
  BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
  bucket.set_layer_count(1);
  bucket.set_scheme(SFB);
  bucket.set_update_at_workers(true);
  Chunk& chunk = *bucket.add_chunks();
  chunk.set_size(kParameters);
  return plan;
}

TEST(ModelMemory, HasNoRoomForAGradientThatDevicesRebuild) {
  const wire::PlanAndModel plan = FactorPlan("SGD", false);
  const ModelMemory host(plan, false);
  const ModelMemory devices(plan, false, {.update_factors = true});
  EXPECT_EQ(host.bucket(0).gradients[0].size(), kParameters);
  EXPECT_TRUE(devices.bucket(0).gradients[0].empty());
  EXPECT_TRUE(devices.bucket(0).gradients[1].empty());
  EXPECT_EQ(devices.bucket(0).optimizer_state[0].size(), kParameters);
  EXPECT_EQ(devices.bucket(0).values.size(), kParameters);
  EXPECT_GE(host.bytes() - devices.bytes(), kParameters * static_cast<int64_t>(sizeof(float)));
}

TEST(ModelMemory, HasRoomForAGradientThatTheHostRebuilds) {
  const ModelMemory deferred(FactorPlan("SGD", true), false, {.update_factors = true});
  EXPECT_EQ(deferred.bucket(0).gradients[0].size(), kParameters);
  const ModelMemory mean(FactorPlan("MeanGradient", true), false, {.update_factors = true});
  EXPECT_EQ(mean.bucket(0).optimizer_state[0].size(), kParameters);
}

// What a codec has not sent goes back on the host, so in a job that recovers it is packed there.
TEST(ModelMemory, DevicesPackWhatNothingIsLeftOf) {
  for (const WireCodec codec : {FP16, INT8, ONE_BIT, TOP_K}) {
    for (const bool recovers : {false, true}) {
      wire::PlanAndModel plan = FactorPlan("SGD", false);
      BucketPlan& bucket = *plan.mutable_plan()->mutable_buckets(0);
      bucket.set_scheme(PS);
      bucket.set_codec(codec);
      const ModelMemory memory(plan,
                               {.phantom = false, .recovers = recovers, .devices = {.pack = true}});
      EXPECT_EQ(memory.bucket(0).packed.empty(), recovers && codec != FP16)
          << WireCodec_Name(codec) << (recovers ? ", recovers" : "");
    }
  }
}

}  // namespace
}  // namespace poseidon
