// Nets of older formats. What is expected is what Caffe's own upgrade gives, put down by hand.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/solver.h"
#include "caffe_adapter/net/upgrade.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Upgraded {
  caffe::NetParameter net;
  Locate locate;
};

Upgraded Upgrade(const std::string& text) {
  Upgraded result;
  const TextLocations locations = ParseText(text, "old.prototxt", result.net);
  result.locate = UpgradeNet(result.net, [locations](const std::string& path) {
    return locations.Find(caffe::NetParameter::default_instance(), path);
  });
  return result;
}

void ExpectUpgrade(const std::string& old, const std::string& expected_text) {
  caffe::NetParameter expected;
  ParseText(expected_text, "new.prototxt", expected);
  std::string differences;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(expected, Upgrade(old).net)) << differences;
}

std::string UpgradeError(const std::string& text) {
  return MessageOf<ConfigError>([&] { Upgrade(text); });
}

TEST(CaffeUpgradeTest, V1LayersBecomeLayers) {
  ExpectUpgrade(R"(
      name: "n"
      layers { name: "d" type: DATA top: "data" top: "label" include { phase: TRAIN }
        data_param { source: "db" batch_size: 4 scale: 0.5 mean_file: "m" crop_size: 3
          mirror: true backend: LMDB } }
      layers { name: "i" type: IMAGE_DATA top: "data" top: "label" exclude { phase: TRAIN }
        image_data_param { source: "list" crop_size: 3 shuffle: true } }
      layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" blobs_lr: 1 blobs_lr: 2
        weight_decay: 1 weight_decay: 0 param: "w" blob_share_mode: PERMISSIVE
        convolution_param { num_output: 2 kernel_size: 3 } }
      layers { name: "l" type: SOFTMAX_LOSS bottom: "c" bottom: "label" loss_weight: 0.3
        loss_param { ignore_label: 3 } })",
                R"(
      name: "n"
      layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN }
        data_param { source: "db" batch_size: 4 backend: LMDB }
        transform_param { scale: 0.5 mean_file: "m" crop_size: 3 mirror: true } }
      layer { name: "i" type: "ImageData" top: "data" top: "label" exclude { phase: TRAIN }
        image_data_param { source: "list" shuffle: true } transform_param { crop_size: 3 } }
      layer { name: "c" type: "Convolution" bottom: "data" top: "c"
        param { name: "w" share_mode: PERMISSIVE lr_mult: 1 decay_mult: 1 }
        param { lr_mult: 2 decay_mult: 0 }
        convolution_param { num_output: 2 kernel_size: 3 } }
      layer { name: "l" type: "SoftmaxWithLoss" bottom: "c" bottom: "label" loss_weight: 0.3
        loss_param { ignore_label: 3 } })");
}

TEST(CaffeUpgradeTest, EveryV1TypeHasAName) {
  const auto& types = *google::protobuf::GetEnumDescriptor<caffe::V1LayerParameter::LayerType>();
  std::set<std::string> names;
  for (int i = 0; i < types.value_count(); ++i) {
    names.insert(Upgrade("layers { type: " + types.value(i)->name() + " }").net.layer(0).type());
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(types.value_count()));
}

TEST(CaffeUpgradeTest, V0LayersBecomeLayers) {
  ExpectUpgrade(R"(
      layers { layer { name: "d" type: "data" source: "db" meanfile: "m" batchsize: 8 cropsize: 5
        mirror: true scale: 2 rand_skip: 3 } top: "data" top: "label" }
      layers { layer { name: "im" type: "images" source: "list" new_height: 4 new_width: 6
        shuffle_images: true batchsize: 2 } top: "x" top: "y" }
      layers { layer { name: "p" type: "padding" pad: 2 } bottom: "data" top: "pad" }
      layers { layer { name: "c" type: "conv" num_output: 4 kernelsize: 5 group: 2 stride: 3
        biasterm: false weight_filler { type: "xavier" } blobs_lr: 1 weight_decay: 2 }
        bottom: "pad" top: "c" }
      layers { layer { name: "o" type: "pool" kernelsize: 3 stride: 2 pad: 1 pool: AVE }
        bottom: "c" top: "o" }
      layers { layer { name: "n" type: "lrn" local_size: 3 alpha: 2 beta: 0.5 k: 4 }
        bottom: "o" top: "n" }
      layers { layer { name: "f" type: "innerproduct" num_output: 7 bias_filler { value: 1 } }
        bottom: "n" top: "f" }
      layers { layer { name: "r" type: "dropout" dropout_ratio: 0.25 } bottom: "f" top: "f" }
      layers { layer { name: "l" type: "softmax_loss" } bottom: "f" bottom: "label" })",
                R"(
      layer { name: "d" type: "Data" top: "data" top: "label"
        data_param { source: "db" batch_size: 8 rand_skip: 3 }
        transform_param { mean_file: "m" crop_size: 5 mirror: true scale: 2 } }
      layer { name: "im" type: "ImageData" top: "x" top: "y" transform_param {}
        image_data_param { source: "list" new_height: 4 new_width: 6 shuffle: true batch_size: 2 } }
      layer { name: "c" type: "Convolution" bottom: "data" top: "c"
        param { lr_mult: 1 decay_mult: 2 }
        convolution_param { num_output: 4 kernel_size: 5 group: 2 stride: 3 pad: 2
          bias_term: false weight_filler { type: "xavier" } } }
      layer { name: "o" type: "Pooling" bottom: "c" top: "o"
        pooling_param { kernel_size: 3 stride: 2 pad: 1 pool: AVE } }
      layer { name: "n" type: "LRN" bottom: "o" top: "n"
        lrn_param { local_size: 3 alpha: 2 beta: 0.5 k: 4 } }
      layer { name: "f" type: "InnerProduct" bottom: "n" top: "f"
        inner_product_param { num_output: 7 bias_filler { value: 1 } } }
      layer { name: "r" type: "Dropout" bottom: "f" top: "f" dropout_param { dropout_ratio: 0.25 } }
      layer { name: "l" type: "SoftmaxWithLoss" bottom: "f" bottom: "label" })");
}

TEST(CaffeUpgradeTest, WhatAV0TypeHasNoUseForIsPassedOver) {
  ExpectUpgrade(R"(layers { layer { name: "r" type: "relu" num_output: 7 } bottom: "x" top: "x" })",
                R"(layer { name: "r" type: "ReLU" bottom: "x" top: "x" })");
}

TEST(CaffeUpgradeTest, InputFieldsBecomeALayer) {
  ExpectUpgrade(R"(
      input: "a" input: "b" input_dim: 1 input_dim: 2 input_dim: 3 input_dim: 4
      input_dim: 5 input_dim: 6 input_dim: 7 input_dim: 8
      layer { name: "r" type: "ReLU" bottom: "a" top: "r" })",
                R"(
      layer { name: "input" type: "Input" top: "a" top: "b" input_param {
        shape { dim: 1 dim: 2 dim: 3 dim: 4 } shape { dim: 5 dim: 6 dim: 7 dim: 8 } } }
      layer { name: "r" type: "ReLU" bottom: "a" top: "r" })");
  ExpectUpgrade(R"(input: "a" input_shape { dim: 4 } layers { name: "r" type: RELU bottom: "a" })",
                R"(
      layer { name: "input" type: "Input" top: "a" input_param { shape { dim: 4 } } }
      layer { name: "r" type: "ReLU" bottom: "a" })");
  // Of a model: what its shape was has no meaning.
  ExpectUpgrade(R"(input: "a" layer { name: "r" })", R"(layer { name: "r" })");
}

TEST(CaffeUpgradeTest, BatchNormStatisticsAreNotLearned) {
  const std::string old = "layer { type: 'BatchNorm' param { decay_mult: 2 } param {} param {} }";
  const std::string still = " param { lr_mult: 0 decay_mult: 0 }";
  ExpectUpgrade(old, "layer { type: 'BatchNorm'" + still + still + still + " }");
}

TEST(CaffeUpgradeTest, PlacesAreThoseOfTheOldFile) {
  const Upgraded net = Upgrade(
      "layers {\n layer { name: 'p' type: 'padding' pad: 1 } bottom: 'x' top: 'pad' }\n"
      "layers {\n layer { name: 'c' type: 'conv' }\n bottom: 'pad' top: 'c' }\n"
      "input: 'x' input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 1");
  EXPECT_EQ(net.locate("layer.1.bottom.0").ToString(), "old.prototxt:5:2");
  EXPECT_EQ(net.locate("layer.1.convolution_param").ToString(), "old.prototxt:3:1");
  EXPECT_EQ(net.locate("layer.0.top.0").ToString(), "old.prototxt:6:1");
  const Upgraded v1 = Upgrade("layers {\n param: 'w' }");
  EXPECT_EQ(v1.locate("layer.0.param.0.name").line, 2);
}

TEST(CaffeUpgradeTest, WhatHasNoMeaning) {
  EXPECT_EQ(
      UpgradeError("layer { name: 'a' }\nlayers { name: 'b' }"),
      "old.prototxt:2:1: the net has both `layer` and, in the old format, `layers`; write all "
      "of its layers in one of them");
  EXPECT_THAT(UpgradeError("layers { layer { name: 'a' type: 'conf' } }"),
              HasSubstr("old.prototxt:1:1: layer \"a\": unknown type \"conf\" of a V0 layer; known "
                        "are accuracy, bnll,"));
  EXPECT_THAT(UpgradeError("layers { layer { name: 'p' type: 'padding' } bottom: 'x' top: 'p' }\n"
                           "layers { layer { name: 'r' type: 'relu' } bottom: 'p' top: 'r' }"),
              HasSubstr("old.prototxt:2:1: layer \"r\": has the padding layer \"p\" as bottom"));
  EXPECT_EQ(UpgradeError("input: 'x' input_dim: 3"),
            "old.prototxt:1:12: there are 1 values of input_dim; expected 4 for each of 1 inputs");
  EXPECT_THAT(UpgradeError("input: 'x' input_shape {} input_shape {}"),
              HasSubstr("there are 2 input_shape entries; expected one for each of 1 inputs"));
}

constexpr char kOldNet[] = R"(
  input: "x" input_dim: 2 input_dim: 1 input_dim: 1 input_dim: 3
  layers { name: "f" type: INNER_PRODUCT bottom: "x" top: "f" blobs_lr: 1 blobs_lr: 2
    inner_product_param { num_output: 4 } }
  layers { name: "l" type: EUCLIDEAN_LOSS bottom: "f" bottom: "f" top: "l" })";

TEST(CaffeUpgradeTest, SolversReadOldNets) {
  const TemporaryDirectory directory;
  directory.Write("net.prototxt", kOldNet);
  const Solver solver = LoadSolver(directory.Write(
      "solver.prototxt", "net: '" + directory.Path("net.prototxt") +
                             "' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1 solver_type: ADAM"));
  EXPECT_EQ(solver.parameter.type(), "Adam");
  const NetDescription net = DescribeNet(solver.train);
  ASSERT_EQ(net.layers.size(), 3u);
  EXPECT_THAT(net.layers[1].parameters[0].shape, ElementsAre(4, 3));
  EXPECT_EQ(net.layers[1].parameters[1].lr_mult, 2);
  EXPECT_EQ(net.layers[1].where.ToString(), directory.Path("net.prototxt") + ":3:3");
}

TEST(CaffeUpgradeTest, ModelsOfOldNets) {
  const TemporaryDirectory directory;
  caffe::NetParameter model;
  ParseText(R"(
      layers { name: "f" type: INNER_PRODUCT
        blobs { num: 1 channels: 1 height: 4 width: 3 data: [1,2,3,4,5,6,7,8,9,10,11,12] }
        blobs { num: 1 channels: 1 height: 1 width: 4 data: [1,2,3,4] } })",
            "model", model);
  WriteBinaryFile(directory.Path("m"), model);
  caffe::NetParameter old;
  ParseText(kOldNet, "net", old);
  const NetDescription net = DescribeNet(old, caffe::TRAIN);
  NetValues values = {{}, {{}, {}}, {}};
  ReadCaffemodel(directory.Path("m"), net, values);
  EXPECT_THAT(values[1][1], ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(values[1][0][11], 12);
}

}  // namespace
}  // namespace poseidon
