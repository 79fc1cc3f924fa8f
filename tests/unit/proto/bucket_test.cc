// What nodes read out of a bucket's plan and of its blobs.
#include "proto/bucket.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>

namespace poseidon {
namespace {

BlobSpec& AddBlob(LayerSpec& layer, int64_t floats) {
  BlobSpec& blob = *layer.add_blobs();
  blob.add_shape(floats);
  return blob;
}

// A program that declares no multipliers trains its blobs, as a net of Caffe does.
TEST(UpdateSegments, BlobsWithoutMultipliersLearn) {
  ModelSpec model;
  LayerSpec& layer = *model.add_layers();
  AddBlob(layer, 2);
  AddBlob(layer, 1).set_lr_mult(2);
  BlobSpec& still = AddBlob(layer, 1);
  still.set_lr_mult(0);
  still.set_decay_mult(0);
  BucketPlan bucket;
  bucket.set_layer_count(1);
  const std::vector<UpdateSegment> segments = UpdateSegments(model, bucket, 0, 4);
  ASSERT_EQ(segments.size(), 3);
  EXPECT_EQ(segments[0].multipliers.lr, 1);
  EXPECT_EQ(segments[0].multipliers.decay, 1);
  EXPECT_EQ(segments[1].multipliers.lr, 2);
  EXPECT_EQ(segments[1].multipliers.decay, 1);
  EXPECT_EQ(segments[2].multipliers.lr, 0);
  EXPECT_EQ(segments[2].multipliers.decay, 0);

  UpdateRule rule;
  rule.base_lr = 0.5F;
  std::array<float, 4> values{};
  const std::array<float, 4> gradient = {1, 1, 1, 1};
  std::array<float, 4> state{};
  UpdateSegmentwise(rule, 0, segments, gradient, 1, values, state);
  EXPECT_EQ(values, (std::array<float, 4>{-0.5F, -0.5F, -1, 0}));
}

TEST(UpdateSegments, GroupsAreCountedAmongThoseOfTheBucket) {
  ModelSpec model;
  for (const int group : {4, 0, 4, 2}) AddBlob(*model.add_layers(), 3).set_group(group);
  BucketPlan bucket;  // of the last three layers
  bucket.set_first_layer(1);
  bucket.set_layer_count(3);
  EXPECT_EQ(GroupsOf(model, bucket), (std::vector<int>{0, 2, 4}));
  const std::vector<UpdateSegment> segments = UpdateSegments(model, bucket, 2, 7);
  ASSERT_EQ(segments.size(), 3);
  EXPECT_EQ(segments[0].group, 0);
  EXPECT_EQ(segments[1].group, 2);
  EXPECT_EQ(segments[2].group, 1);
  EXPECT_EQ(CutSegments(segments, 1, 3)[0].group, 2);

  UpdateRule rule;
  rule.type = kTorchSgd;
  const ParameterGroup groups[] = {
      {.learning_rate = 1}, {.learning_rate = 2}, {.learning_rate = 4}};
  std::array<float, 7> values{};
  const std::array<float, 7> gradient = {1, 1, 1, 1, 1, 1, 1};
  std::array<float, 7> state{};
  UpdateSegmentwise(rule, 0, segments, gradient, 1, values, state, 1, groups);
  EXPECT_EQ(values, (std::array<float, 7>{-1, -4, -4, -4, -2, -2, -2}));
}

TEST(PriorityOf, OlderExchangesAndLowerLayersGoFirstHoweverLongTheTraining) {
  constexpr int kBuckets = 8;
  const auto priority = [](int bucket, int64_t exchange) {
    return PriorityOf(false, kBuckets, bucket, exchange);
  };
  for (const int64_t exchange :
       {int64_t{0}, (int64_t{1} << 31) / kBuckets - 1, int64_t{1} << 31, int64_t{1} << 53}) {
    EXPECT_LT(priority(0, exchange), priority(1, exchange)) << exchange;
    EXPECT_LT(priority(kBuckets - 1, exchange), priority(0, exchange + 1)) << exchange;
  }
  // Of damaged frames.
  EXPECT_EQ(priority(1, -1), 1);
  EXPECT_GT(priority(1, std::numeric_limits<int64_t>::max()), priority(1, int64_t{1} << 53));
}

}  // namespace
}  // namespace poseidon
