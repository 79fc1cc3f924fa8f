// From a replay to a model and back.
#include "proto/replay_model.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

Replay RandomReplay(std::mt19937& random) {
  Replay replay;
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  replay.set_batch(draw(1, 64));
  const int layers = draw(1, 20);
  for (int i = 0; i < layers; ++i) {
    ReplayLayer& layer = *replay.add_layers();
    layer.set_name("layer" + std::to_string(i));
    layer.set_forward_ms(draw(0, 1000) / 16.0);
    layer.set_backward_ms(draw(0, 1000) / 16.0);
    layer.set_type(draw(0, 1) == 0 ? "InnerProduct" : "Convolution");
    if (layer.type() == "InnerProduct") {
      layer.set_inputs(draw(1, 5000));
      layer.set_outputs(draw(1, 5000));
      if (draw(0, 1) == 0) layer.set_rows_per_sample(draw(2, 100));
      if (draw(0, 1) == 0) layer.set_bias(false);
    } else {
      layer.set_parameters(draw(1, 1000000));
    }
  }
  return replay;
}

TEST(ReplayOfTest, IsTheInverseOfDescribing) {
  std::mt19937 random(7);
  for (int i = 0; i < 100; ++i) {
    const ModelSpec model = DescribeReplay(RandomReplay(random)).model;
    const ModelSpec again = DescribeReplay(ReplayOf(model)).model;
    ASSERT_TRUE(google::protobuf::util::MessageDifferencer::Equals(model, again))
        << model.ShortDebugString() << "\n"
        << again.ShortDebugString();
  }
}

ModelSpec OneInnerProduct() {
  Replay replay;
  replay.set_batch(8);
  ReplayLayer& layer = *replay.add_layers();
  layer.set_name("fc");
  layer.set_type("InnerProduct");
  layer.set_inputs(30);
  layer.set_outputs(4);
  return DescribeReplay(replay).model;
}

TEST(ReplayOfTest, LayersWithSeveralBlobsKeepTheirFloats) {
  ModelSpec model = OneInnerProduct();
  model.mutable_layers(0)->clear_inner_product();
  const Replay replay = ReplayOf(model);
  EXPECT_EQ(replay.layers(0).parameters(), 30 * 4 + 4);
  const ModelSpec again = DescribeReplay(replay).model;
  EXPECT_FALSE(again.layers(0).has_inner_product());
}

TEST(ReplayOfTest, RefusesWhatAReplayCanNotBe) {
  ModelSpec model = OneInnerProduct();
  model.mutable_layers(0)->mutable_inner_product()->set_rows(17);
  EXPECT_THAT(MessageOf<ConfigError>([&] { ReplayOf(model); }),
              HasSubstr("layer \"fc\": its factors have 17 rows"));
}

TEST(DescribeReplayTest, RowsOfASampleAreForInnerProductsOnly) {
  Replay replay = ReplayOf(OneInnerProduct());
  replay.mutable_layers(0)->set_rows_per_sample(0);
  EXPECT_THAT(MessageOf<ConfigError>([&] { DescribeReplay(replay); }),
              HasSubstr("rows_per_sample is 0"));
  replay.mutable_layers(0)->set_rows_per_sample(5);
  EXPECT_EQ(DescribeReplay(replay).model.layers(0).inner_product().rows(), 8 * 5);
  ReplayLayer& layer = *replay.mutable_layers(0);
  layer.set_type("Convolution");
  layer.clear_inputs();
  layer.clear_outputs();
  EXPECT_THAT(MessageOf<ConfigError>([&] { DescribeReplay(replay); }),
              HasSubstr("rows_per_sample and bias are for type \"InnerProduct\" only"));
}

}  // namespace
}  // namespace poseidon
