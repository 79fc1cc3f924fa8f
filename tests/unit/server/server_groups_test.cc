// Parameter groups on a server: each iteration is updated by the numbers that came with its
// gradients, on which all workers must agree.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "proto/update_rule_message.h"
#include "tests/unit/server/server_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Two workers, and a layer of two blobs of two floats, in groups 3 and 1.
wire::PlanAndModel GroupedPlan() {
  wire::PlanAndModel plan = EmptyPlan(2);
  plan.mutable_model()->mutable_update_rule()->Clear();
  plan.mutable_model()->mutable_update_rule()->set_type("TorchSGD");
  AddBucket(plan, "fc1", {4});
  LayerSpec& layer = *plan.mutable_model()->mutable_layers(0);
  layer.mutable_blobs(0)->set_shape(0, 2);
  layer.mutable_blobs(0)->set_group(3);
  layer.add_blobs()->add_shape(2);
  layer.mutable_blobs(1)->set_group(1);
  return plan;
}

class GroupsTest : public testing::Test {
 protected:
  GroupsTest() {
    shard_.Receive(ShardFrame(MessageKind::kInitialValues, 0, 0, Body({0, 0, 8, 8})));
  }

  // Groups 1 and 3 have these rates.
  static Envelope Gradient(int worker, int64_t iteration, const std::vector<double>& rates) {
    Envelope envelope = ShardFrame(MessageKind::kGradient, worker, iteration, Body({1, 2, 4, 8}));
    std::vector<ParameterGroup> groups;
    for (const double rate : rates) groups.push_back({.learning_rate = rate});
    envelope.settings = Payload::FromString(PackSettings(groups));
    return envelope;
  }

  ShardUnderTest shard_{GroupedPlan()};
};

TEST_F(GroupsTest, EachBlobIsUpdatedByItsGroupAndEachIterationByItsNumbers) {
  shard_.Receive(Gradient(0, 0, {0.5, 1}));
  const std::vector<Envelope>& sent = shard_.Receive(Gradient(1, 0, {0.5, 1}));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_THAT(FloatsOf(sent[0].body), ElementsAre(-1, -2, 6, 4));
  shard_.Receive(Gradient(1, 1, {0, 0.25}));
  shard_.Receive(Gradient(0, 1, {0, 0.25}));
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_THAT(FloatsOf(sent[0].body), ElementsAre(-1.25F, -2.5F, 6, 4));
  EXPECT_EQ(shard_->dropped_frames(), 0);
}

TEST_F(GroupsTest, WorkersThatDoNotAgreeEndTheJobWithTheirRanks) {
  shard_.Receive(Gradient(0, 0, {0.5, 1}));
  shard_.Receive(Gradient(1, 0, {0.5, 1}));
  shard_.Receive(Gradient(1, 1, {0.5, 0.1}));
  try {
    shard_.Receive(Gradient(0, 1, {0.5, 1}));
    FAIL() << "nothing was said";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("workers do not agree how to update layer fc1 in iteration 1: parameter "
                          "group 3 has lr 0.1 on worker 1 and 1 on worker 0"));
  }
}

TEST_F(GroupsTest, AGradientWithoutGoodNumbersIsDropped) {
  Envelope none = Gradient(0, 0, {0.5, 1});
  none.settings = {};
  const Envelope few = Gradient(0, 0, {0.5});
  const Envelope many = Gradient(0, 0, {0.5, 1, 1});
  const Envelope negative = Gradient(0, 0, {0.5, -1});
  Envelope garbage = none;
  garbage.settings = Payload::FromString("garbage");
  int dropped = 0;
  for (const Envelope& envelope : {none, few, many, negative, garbage}) {
    EXPECT_TRUE(shard_.Receive(envelope).empty());
    EXPECT_EQ(shard_->dropped_frames(), ++dropped);
  }
  // The worker is still heard.
  shard_.Receive(Gradient(0, 0, {0.5, 1}));
  EXPECT_EQ(shard_.Receive(Gradient(1, 0, {0.5, 1})).size(), 2u);
}

TEST_F(GroupsTest, AFrameThatComesAgainDoesNotDisagree) {
  shard_.Receive(Gradient(0, 0, {0.5, 1}));
  shard_.Receive(Gradient(1, 0, {0.5, 1}));
  shard_.Receive(Gradient(0, 1, {0.25, 1}));
  EXPECT_TRUE(shard_.Receive(Gradient(1, 0, {0.5, 1})).empty());
  EXPECT_EQ(shard_.Receive(Gradient(1, 1, {0.25, 1})).size(), 2u);
  EXPECT_EQ(shard_->dropped_frames(), 1);
}

}  // namespace
}  // namespace poseidon
