// What a worker keeps, and what it goes back to, for every update rule.
#include "client/sync/kept_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "client/sync/syncer.h"

namespace poseidon {
namespace {

constexpr int kWorkers = 3;

// One bucket of `layers`, cut into chunks of random sizes.
std::shared_ptr<const wire::PlanAndModel> RandomPlan(const std::string& rule,
                                                     std::mt19937_64& random) {
  auto plan = std::make_shared<wire::PlanAndModel>();
  UpdateRuleSpec& update = *plan->mutable_model()->mutable_update_rule();
  update.set_type(rule);
  update.set_base_lr(0.1F);
  update.set_lr_policy("fixed");
  const bool takes_momentum = rule != "AdaGrad" && rule != "RMSProp";
  update.set_momentum(takes_momentum ? 0.9F : 0.0F);
  update.set_delta(0.01F);
  plan->mutable_plan()->set_workers(kWorkers);
  plan->mutable_plan()->set_lanes(1);
  for (int l = 0; l < 2; ++l) {
    LayerSpec& layer = *plan->mutable_model()->add_layers();
    layer.set_name("layer" + std::to_string(l));
    BlobSpec& blob = *layer.add_blobs();
    blob.add_shape(1 + static_cast<int64_t>(random() % 50));
    blob.set_lr_mult(1);
    BucketPlan& bucket = *plan->mutable_plan()->add_buckets();
    bucket.set_first_layer(l);
    bucket.set_layer_count(1);
    bucket.set_scheme(RING);
    bucket.set_update_at_workers(true);
    for (int64_t offset = 0; offset < blob.shape(0);) {
      Chunk& chunk = *bucket.add_chunks();
      chunk.set_offset(offset);
      chunk.set_size(
          std::min<int64_t>(1 + static_cast<int64_t>(random() % 20), blob.shape(0) - offset));
      offset += chunk.size();
    }
  }
  return plan;
}

using Contents = std::vector<float>;

class KeptStateTest : public testing::TestWithParam<const char*> {
 protected:
  void MakeContext(uint64_t seed) {
    random_.seed(seed);
    const auto plan = RandomPlan(GetParam(), random_);
    context_ = std::make_unique<SyncContext>(
        plan, std::make_shared<ModelMemory>(
                  *plan, ModelMemory::Options{.phantom = false, .recovers = true, .devices = {}}));
    context_->kept = std::make_shared<KeptState>(plan, context_->memory, false);
    for (int b = 0; b < 2; ++b) {
      for (float& value : context_->memory->bucket(b).values) value = Draw();
    }
    context_->kept->AllArrived(0);
  }

  float Draw() { return static_cast<float>(random_() % 1000) / 1000.0F - 0.5F; }

  void Update(int bucket, const Chunk& chunk, int64_t iteration) {
    std::vector<float> gradient(chunk.size());
    for (float& value : gradient) value = Draw();
    context_->Keep(bucket, iteration, chunk.offset(), chunk.size());
    context_->UpdateRange(bucket, iteration, chunk.offset(), gradient, 1);
  }

  void UpdateAll(int64_t iteration) {
    for (int b = 0; b < 2; ++b) {
      for (const Chunk& chunk : context_->bucket(b).chunks()) Update(b, chunk, iteration);
    }
  }

  // Everything for the forward pass of `iteration`: values and optimizer state.
  Contents All(int64_t iteration) const {
    Contents all;
    for (int b = 0; b < 2; ++b) {
      const BucketMemory& memory = context_->memory->bucket(b);
      all.insert(all.end(), memory.values.begin(), memory.values.end());
      const std::span<const float> state = memory.optimizer_state[iteration % 2];
      all.insert(all.end(), state.begin(), state.end());
    }
    return all;
  }

  std::mt19937_64 random_;
  std::unique_ptr<SyncContext> context_;
};

TEST_P(KeptStateTest, GoesBackToTheOldestVersionBitByBit) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    MakeContext(seed);
    const auto iterations = static_cast<int64_t>(random_() % 4);
    for (int64_t t = 0; t < iterations; ++t) UpdateAll(t);
    const Contents before = All(iterations);
    for (int b = 0; b < 2; ++b) {
      for (const Chunk& chunk : context_->bucket(b).chunks()) {
        if (random_() % 2 == 0) Update(b, chunk, iterations);
      }
    }
    const bool all_updated = context_->kept->OldestVersion() != iterations;
    EXPECT_EQ(context_->kept->OldestVersion(), all_updated ? iterations + 1 : iterations);
    context_->kept->GoBack(iterations);
    EXPECT_EQ(All(iterations), before) << "seed " << seed;
    EXPECT_EQ(context_->kept->OldestVersion(), iterations);
    // A second time, too; and training goes on from there.
    context_->kept->GoBack(iterations);
    EXPECT_EQ(All(iterations), before) << "seed " << seed;
    UpdateAll(iterations);
    EXPECT_EQ(context_->kept->OldestVersion(), iterations + 1);
  }
}

TEST_P(KeptStateTest, HasNoVersionWhileSomethingIsMissing) {
  MakeContext(7);
  context_->kept->Forget(0);
  EXPECT_FALSE(context_->kept->OldestVersion());
  for (int b = 0; b < 2; ++b) {
    for (int c = 0; c < context_->bucket(b).chunks_size(); ++c) {
      EXPECT_FALSE(context_->kept->OldestVersion());
      context_->kept->Arrived(b, c, 12);
    }
  }
  EXPECT_EQ(context_->kept->OldestVersion(), 12);
}

INSTANTIATE_TEST_SUITE_P(Rules, KeptStateTest,
                         testing::Values("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta",
                                         "Adam"));

}  // namespace
}  // namespace poseidon
