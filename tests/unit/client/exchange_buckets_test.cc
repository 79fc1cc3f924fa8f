#include "client/staging/exchange_buckets.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>

namespace poseidon {
namespace {

constexpr int64_t kMostFloats = 1 << 20;  // 4 MiB

// Layers of random sizes, in buckets of one or two.
std::shared_ptr<wire::PlanAndModel> RandomPlan(int workers, std::mt19937_64& random) {
  auto plan = std::make_shared<wire::PlanAndModel>();
  UpdateRuleSpec& update = *plan->mutable_model()->mutable_update_rule();
  update.set_type("SGD");
  update.set_base_lr(0.1F);
  update.set_lr_policy("fixed");
  plan->mutable_plan()->set_workers(workers);
  plan->mutable_plan()->set_lanes(1);
  const auto buckets = static_cast<int>(1 + random() % 10);
  for (int b = 0; b < buckets; ++b) {
    BucketPlan& bucket = *plan->mutable_plan()->add_buckets();
    bucket.set_name("bucket" + std::to_string(b));
    bucket.set_first_layer(plan->model().layers_size());
    bucket.set_layer_count(static_cast<int>(1 + random() % 2));
    bucket.set_scheme(random() % 4 == 0 ? HALVING_DOUBLING : RING);
    bucket.set_update_at_workers(true);
    int64_t floats = 0;
    for (int l = 0; l < bucket.layer_count(); ++l) {
      LayerSpec& layer = *plan->mutable_model()->add_layers();
      layer.set_name("layer" + std::to_string(bucket.first_layer() + l));
      BlobSpec& blob = *layer.add_blobs();
      blob.add_shape(1 + static_cast<int64_t>(random() % kMostFloats));
      blob.set_lr_mult(1);
      floats += blob.shape(0);
    }
    Chunk& chunk = *bucket.add_chunks();
    chunk.set_size(floats);
  }
  return plan;
}

std::unique_ptr<SyncContext> MakeContext(const std::shared_ptr<wire::PlanAndModel>& plan,
                                         bool devices_update) {
  auto context = std::make_unique<SyncContext>(
      plan, std::make_shared<ModelMemory>(
                *plan, ModelMemory::Options{.phantom = true, .recovers = false, .devices = {}}));
  context->devices_update = devices_update;
  return context;
}

int64_t FloatsOf(const ModelSpec& model, const LayerExchange::Bucket& bucket) {
  int64_t floats = 0;
  for (int l = 0; l < bucket.layers; ++l) {
    floats += model.layers(bucket.first_layer + l).blobs(0).shape(0);
  }
  return floats;
}

TEST(ExchangeBucketsTest, WhatOneWorkerKeepsGoesTogether) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 50; ++i) {
    const auto plan = RandomPlan(1, random);
    const auto context = MakeContext(plan, true);
    const std::vector<LayerExchange::Bucket> buckets = ExchangeBuckets(*context);
    int next = 0;
    int64_t before = kMostFloats;
    for (const LayerExchange::Bucket& bucket : buckets) {
      EXPECT_EQ(bucket.first_layer, next);
      next += bucket.layers;
      const int64_t floats = FloatsOf(plan->model(), bucket);
      EXPECT_GT(bucket.layers, 0);
      // None could have gone with the one before it, and only what was planned so is larger.
      EXPECT_GT(before + floats, kMostFloats);
      EXPECT_TRUE(floats <= kMostFloats || bucket.name.starts_with("bucket")) << bucket.name;
      before = floats;
    }
    EXPECT_EQ(next, plan->model().layers_size());
  }
}

TEST(ExchangeBucketsTest, OthersAreThePlans) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 20; ++i) {
    const bool with_others = i % 2 == 0;
    const auto plan = RandomPlan(with_others ? 2 : 1, random);
    const auto context = MakeContext(plan, with_others);
    const std::vector<LayerExchange::Bucket> buckets = ExchangeBuckets(*context);
    ASSERT_EQ(buckets.size(), static_cast<size_t>(plan->plan().buckets_size()));
    for (size_t b = 0; b < buckets.size(); ++b) {
      const BucketPlan& planned = plan->plan().buckets(static_cast<int>(b));
      EXPECT_EQ(buckets[b].first_layer, planned.first_layer());
      EXPECT_EQ(buckets[b].layers, planned.layer_count());
      EXPECT_EQ(buckets[b].name, planned.name());
    }
  }
}

}  // namespace
}  // namespace poseidon
