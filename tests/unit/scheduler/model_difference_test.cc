#include "scheduler/agreement/model_difference.h"

#include <gtest/gtest.h>

#include "proto/model.pb.h"

namespace poseidon {
namespace {

ModelSpec TwoLayers() {
  ModelSpec model;
  for (const char* name : {"first", "second"}) {
    LayerSpec& layer = *model.add_layers();
    layer.set_name(name);
    layer.add_blobs()->add_shape(4);
    layer.mutable_blobs(0)->add_shape(3);
    layer.add_blobs()->add_shape(4);
  }
  return model;
}

std::string Difference(const ModelSpec& model, const ModelSpec& other) {
  return DescribeModelDifference(model.SerializeAsString(), other.SerializeAsString());
}

TEST(ModelDifference, NamesTheFirstLayerWithOtherShapes) {
  ModelSpec other = TwoLayers();
  other.mutable_layers(1)->mutable_blobs(0)->set_shape(1, 5);
  EXPECT_EQ(Difference(TwoLayers(), other),
            "its layer 1 is \"second\" (4 x 3, 4), the other's \"second\" (4 x 5, 4)");
}

TEST(ModelDifference, SaysThatALayerIsMissing) {
  ModelSpec other = TwoLayers();
  other.mutable_layers()->RemoveLast();
  EXPECT_EQ(Difference(TwoLayers(), other), "it has 2 layers that learn, the other 1");
}

TEST(ModelDifference, TellsShapesFromRatesAndTheRest) {
  ModelSpec other = TwoLayers();
  other.mutable_layers(0)->mutable_blobs(0)->set_lr_mult(2);
  EXPECT_EQ(Difference(TwoLayers(), other),
            "layer \"first\" (4 x 3, 4) has other rates, times or factors");
  other = TwoLayers();
  other.set_batch(7);
  EXPECT_EQ(Difference(TwoLayers(), other),
            "their layers are the same, but not the optimizer, the batch, the iterations or the "
            "name");
}

TEST(ModelDifference, NamesClipping) {
  ModelSpec other = TwoLayers();
  other.mutable_update_rule()->set_clip_gradients(35);
  EXPECT_EQ(Difference(TwoLayers(), other),
            "its solver has no clip_gradients, the other's clip_gradients 35");
  ModelSpec model = other;
  model.mutable_update_rule()->set_clip_gradients(0.5F);
  EXPECT_EQ(Difference(model, other),
            "its solver has clip_gradients 0.5, the other's clip_gradients 35");
}

}  // namespace
}  // namespace poseidon
