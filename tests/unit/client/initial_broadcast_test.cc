// What a plan starts with, on its way from worker 0 to the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "client/sync/all_reduce_syncer.h"
#include "core/arithmetic/sum.h"

namespace poseidon {
namespace {

using testing::ElementsAre;

constexpr int64_t kStart = 5;

// A job of 4 workers goes over to an all-reduce, and the program updates by mean gradients.
std::shared_ptr<SyncContext> MeanGradientContext(int place) {
  wire::PlanAndModel plan;
  plan.mutable_model()->mutable_update_rule()->set_type("MeanGradient");
  plan.mutable_model()->add_layers()->add_blobs()->add_shape(2);
  plan.mutable_plan()->set_workers(4);
  plan.mutable_plan()->set_lanes(1);
  plan.mutable_plan()->set_start_iteration(kStart);
  BucketPlan& bucket = *plan.mutable_plan()->add_buckets();
  bucket.set_scheme(RING);
  bucket.set_layer_count(1);
  bucket.set_update_at_workers(true);
  bucket.add_chunks()->set_size(2);
  auto memory = std::make_shared<ModelMemory>(plan, false);
  auto context = std::make_shared<SyncContext>(std::move(plan), std::move(memory));
  context->place = place;
  return context;
}

Envelope ValuesFromWorker0(float each) {
  auto floats = std::make_shared<std::vector<float>>(2, each);
  Envelope envelope;
  envelope.kind = MessageKind::kInitialValues;
  envelope.from.node = {Role::kWorker, 0};
  envelope.iteration = kStart;
  envelope.body = Payload::View(std::span<const float>(*floats), floats);
  return envelope;
}

// The mean gradient of the iteration before may be applied as soon as the values are here.
TEST(InitialBroadcastTest, SendsValuesThatTheProgramHasNotUpdated) {
  for (const int place : {0, 1}) {
    SCOPED_TRACE(place);
    const auto context = MeanGradientContext(place);
    AllReduceSyncer syncer(context, 0, 0);
    const std::span<float> values = context->memory->values(0);
    Outbox outbox;
    if (place == 0) {
      std::ranges::fill(values, 1.0F);
      EXPECT_EQ(syncer.PublishInitial({}, outbox), FrameStatus::kComplete);
    } else {
      EXPECT_EQ(syncer.Receive(ValuesFromWorker0(1), outbox), FrameStatus::kComplete);
    }
    EXPECT_EQ(syncer.fresh_iteration(), kStart);
    std::ranges::fill(values, 2.0F);
    ASSERT_EQ(outbox.messages.size(), place == 0 ? 2u : 1u);  // of a binary tree
    for (const Envelope& sent : outbox.messages) {
      std::vector<float> floats(2);
      CopyFrom(floats, sent.body.bytes());
      EXPECT_THAT(floats, ElementsAre(1, 1)) << "to " << sent.to.node.ToString();
    }
  }
}

}  // namespace
}  // namespace poseidon
