#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/solver.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct ParsedNet {
  caffe::NetParameter net;
  TextLocations locations;
};

ParsedNet Parse(const std::string& text) {
  ParsedNet parsed;
  parsed.locations = ParseText(text, "net.prototxt", parsed.net);
  return parsed;
}

NetDescription Describe(const std::string& text, caffe::Phase phase = caffe::TRAIN,
                        DescribeOptions options = {}) {
  const ParsedNet parsed = Parse(text);
  options.locate = [&](const std::string& path) { return parsed.locations.Find(parsed.net, path); };
  return DescribeNet(parsed.net, phase, options);
}

std::string DescribeError(const std::string& text) {
  return MessageOf<ConfigError>([&] { Describe(text); });
}

std::string Input(const Shape& shape, const std::string& top = "data") {
  std::string dims;
  for (const int64_t extent : shape) dims += " dim: " + std::to_string(extent);
  return "layer { name: '" + top + "' type: 'Input' top: '" + top + "' input_param { shape {" +
         dims + " } } }\n";
}

// The top of one layer over an input.
Shape TopOf(const Shape& input, const std::string& type, const std::string& fields) {
  const NetDescription net = Describe(Input(input) + "layer { name: 'x' type: '" + type +
                                      "' bottom: 'data' top: 'x' " + fields + " }");
  return net.layers.back().tops[0].shape;
}

// Windows that end inside, and rounding up one more where pixels are left over, unless it would
// start beyond the image.
int64_t CountWindows(int64_t extent, int64_t kernel, int64_t stride, int64_t pad, bool up) {
  int64_t windows = 0;
  int64_t begin = -pad;
  for (; begin + kernel <= extent + pad; begin += stride) ++windows;
  const bool left_over = begin - stride + kernel < extent + pad;
  return up && left_over && (pad == 0 || begin < extent) ? windows + 1 : windows;
}

TEST(CaffeNetTest, PoolingExtentsMatchWalkingWindows) {
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 500; ++i) {
    const int64_t kernel = draw(1, 5);
    const int64_t pad = draw(0, kernel - 1);
    const int64_t stride = draw(1, kernel);  // windows that skip nothing
    const int64_t extent = draw(kernel, 30);
    const std::string window = " kernel_size: " + std::to_string(kernel) +
                               " stride: " + std::to_string(stride) +
                               " pad: " + std::to_string(pad) + " } ";
    const int64_t up = CountWindows(extent, kernel, stride, pad, true);
    EXPECT_THAT(TopOf({2, 3, extent, extent}, "Pooling", "pooling_param {" + window),
                ElementsAre(2, 3, up, up));
    const int64_t down = CountWindows(extent, kernel, stride, pad, false);
    EXPECT_THAT(
        TopOf({2, 3, extent, extent}, "Pooling", "pooling_param { round_mode: FLOOR" + window),
        ElementsAre(2, 3, down, down));
    EXPECT_THAT(
        TopOf({2, 3, extent, extent}, "Convolution", "convolution_param { num_output: 4" + window),
        ElementsAre(2, 4, down, down));
  }
}

TEST(CaffeNetTest, PoolingAsCaffe) {
  // GoogLeNet's pools, AlexNet's, ResNet's: sizes that everyone who trained them knows.
  EXPECT_THAT(TopOf({1, 64, 112, 112}, "Pooling", "pooling_param { kernel_size: 3 stride: 2 }"),
              ElementsAre(1, 64, 56, 56));
  EXPECT_THAT(TopOf({1, 96, 55, 55}, "Pooling", "pooling_param { kernel_size: 3 stride: 2 }"),
              ElementsAre(1, 96, 27, 27));
  EXPECT_THAT(TopOf({1, 8, 28, 28}, "Pooling", "pooling_param { kernel_size: 3 stride: 1 pad: 1 }"),
              ElementsAre(1, 8, 28, 28));
  // Rounded up to 3, but the third window would start in the far padding: clipped.
  EXPECT_THAT(TopOf({1, 1, 3, 3}, "Pooling", "pooling_param { kernel_size: 2 stride: 2 pad: 1 }"),
              ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(TopOf({2, 5, 7, 9}, "Pooling", "pooling_param { pool: AVE global_pooling: true }"),
              ElementsAre(2, 5, 1, 1));
  EXPECT_THAT(TopOf({1, 1, 10, 12}, "Pooling",
                    "pooling_param { kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 3 }"),
              ElementsAre(1, 1, 5, 4));
}

TEST(CaffeNetTest, ConvolutionParameters) {
  const NetDescription net = Describe(
      Input({4, 6, 20, 21}) +
      "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c' param { lr_mult: 3 }"
      " param { lr_mult: 0.5 decay_mult: 0 } convolution_param { num_output: 8 group: 2"
      " kernel_h: 3 kernel_w: 5 stride: 2 pad: 1 dilation: 2 weight_filler { type: 'xavier' } } }");
  const LayerDescription& layer = net.layers[1];
  // Reach 5 and 9 of 22 and 23: (22 - 5) / 2 + 1 and (23 - 9) / 2 + 1.
  EXPECT_THAT(layer.tops[0].shape, ElementsAre(4, 8, 9, 8));
  ASSERT_EQ(layer.parameters.size(), 2u);
  EXPECT_THAT(layer.parameters[0].shape, ElementsAre(8, 3, 3, 5));
  EXPECT_THAT(layer.parameters[1].shape, ElementsAre(8));
  EXPECT_EQ(layer.parameters[0].filler.type(), "xavier");
  EXPECT_EQ(layer.parameters[1].filler.type(), "constant");
  EXPECT_EQ(layer.parameters[0].lr_mult, 3);
  EXPECT_EQ(layer.parameters[0].decay_mult, 1);
  EXPECT_EQ(layer.parameters[1].lr_mult, 0.5F);
  EXPECT_EQ(layer.parameters[1].decay_mult, 0);
  EXPECT_EQ(net.batch, 4);
}

TEST(CaffeNetTest, ShapesOfTheOtherTypes) {
  EXPECT_THAT(TopOf({2, 3, 4, 5}, "InnerProduct", "inner_product_param { num_output: 7 }"),
              ElementsAre(2, 7));
  EXPECT_THAT(TopOf({2, 3, 4}, "InnerProduct", "inner_product_param { num_output: 7 axis: -1 }"),
              ElementsAre(2, 3, 7));
  EXPECT_THAT(TopOf({2, 3, 4, 5}, "Flatten", ""), ElementsAre(2, 60));
  EXPECT_THAT(TopOf({2, 3, 4, 5}, "Flatten", "flatten_param { axis: 1 end_axis: 2 }"),
              ElementsAre(2, 12, 5));
  EXPECT_THAT(TopOf({2, 3, 4, 5}, "LRN", ""), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(TopOf({2, 3}, "Softmax", ""), ElementsAre(2, 3));
  for (const char* type : {"ReLU", "Sigmoid", "TanH", "Dropout", "BatchNorm", "Scale"}) {
    EXPECT_THAT(TopOf({2, 3, 4, 5}, type, ""), ElementsAre(2, 3, 4, 5)) << type;
  }
  const NetDescription net = Describe(
      Input({2, 3, 4, 4}, "a") + Input({2, 5, 4, 4}, "b") + Input({2, 3, 4, 4}, "c") +
      "layer { name: 'k' type: 'Concat' bottom: 'a' bottom: 'b' top: 'k' }"
      "layer { name: 'e' type: 'Eltwise' bottom: 'a' bottom: 'c' top: 'e' }"
      "layer { name: 's' type: 'Split' bottom: 'e' top: 's1' top: 's2' }"
      "layer { name: 'd' type: 'DummyData' top: 'd' dummy_data_param { shape { dim: 9 } } }");
  EXPECT_THAT(net.layers[3].tops[0].shape, ElementsAre(2, 8, 4, 4));
  EXPECT_THAT(net.layers[4].tops[0].shape, ElementsAre(2, 3, 4, 4));
  EXPECT_THAT(net.layers[5].tops[1].shape, ElementsAre(2, 3, 4, 4));
  EXPECT_THAT(net.layers[6].tops[0].shape, ElementsAre(9));
}

TEST(CaffeNetTest, ScaleAndBatchNormParameters) {
  const NetDescription net =
      Describe(Input({2, 3, 4, 5}) +
               "layer { name: 'n' type: 'BatchNorm' bottom: 'data' top: 'data' }"
               "layer { name: 's' type: 'Scale' bottom: 'data' top: 'data'"
               " scale_param { bias_term: true } }");
  EXPECT_EQ(net.layers[1].parameters.size(), 3u);
  for (const ParameterDescription& statistic : net.layers[1].parameters) {
    EXPECT_EQ(statistic.lr_mult, 0);
  }
  ASSERT_EQ(net.layers[2].parameters.size(), 2u);
  EXPECT_THAT(net.layers[2].parameters[0].shape, ElementsAre(3));
  EXPECT_EQ(net.layers[2].parameters[0].filler.value(), 1);
  EXPECT_EQ(net.layers[2].parameters[1].filler.value(), 0);
  const ModelSpec model = ToModelSpec(net, {});
  ASSERT_EQ(model.layers_size(), 1);  // statistics are not learned
  EXPECT_EQ(model.layers(0).name(), "s");
}

TEST(CaffeNetTest, LossWeightsAndTheUnnamedTopOfALoss) {
  const NetDescription net =
      Describe(Input({4, 10}, "x") + Input({4}, "y") +
               "layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'y' }"
               "layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'r' loss_weight: 0.25 }");
  EXPECT_EQ(net.layers[2].tops[0].name, "l");
  EXPECT_TRUE(net.layers[2].tops[0].shape.empty());
  EXPECT_THAT(net.layers[2].loss_weights, ElementsAre(1));
  EXPECT_THAT(net.layers[3].loss_weights, ElementsAre(0.25F));
}

TEST(CaffeNetTest, TheUnnamedTopOfALossIsNoOtherBlob) {
  const std::string loss =
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'loss' bottom: 'y' }";
  const NetDescription net = Describe(Input({4, 10}, "loss") + Input({4}, "y") + loss + loss);
  ASSERT_EQ(net.layers.size(), 4);
  for (const size_t layer : {2, 3}) {
    EXPECT_THAT(net.layers[layer].loss_weights, ElementsAre(1));
    EXPECT_THAT(net.layers[layer].bottoms[0].shape, ElementsAre(4, 10)) << "the input";
  }
  EXPECT_EQ(net.layers[2].tops[0].name, "loss (automatic)");
  EXPECT_NE(net.layers[3].tops[0].name, net.layers[2].tops[0].name);

  const NetDescription before =
      Describe(Input({4, 10}, "x") + Input({4}, "y") +
               "layer { name: 'later' type: 'SoftmaxWithLoss' bottom: 'x' bottom: 'y' }"
               "layer { name: 'r' type: 'ReLU' bottom: 'x' top: 'later' }");
  EXPECT_EQ(before.layers[2].tops[0].name, "later (automatic)");
}

std::vector<std::string> NamesInPhase(const caffe::NetParameter& net, caffe::Phase phase,
                                      const std::string& state = "") {
  DescribeOptions options;
  ParseText(state, "state", options.state);
  std::vector<std::string> names;
  for (const int i : LayersInPhase(net, phase, options)) names.push_back(net.layer(i).name());
  return names;
}

TEST(CaffeNetTest, IncludeAndExcludeRules) {
  const caffe::NetParameter net =
      Parse(
          "layer { name: 'all' }"
          "layer { name: 'train' include { phase: TRAIN } }"
          "layer { name: 'not_test' exclude { phase: TEST } }"
          "layer { name: 'either' include { phase: TEST } include { stage: 'deploy' } }"
          "layer { name: 'level' include { min_level: 2 max_level: 3 } }"
          "layer { name: 'stages' include { stage: 'a' stage: 'b' not_stage: 'c' } }")
          .net;
  EXPECT_THAT(NamesInPhase(net, caffe::TRAIN), ElementsAre("all", "train", "not_test"));
  EXPECT_THAT(NamesInPhase(net, caffe::TEST), ElementsAre("all", "either"));
  EXPECT_THAT(NamesInPhase(net, caffe::TRAIN, "level: 2 stage: 'deploy'"),
              ElementsAre("all", "train", "not_test", "either", "level"));
  EXPECT_THAT(NamesInPhase(net, caffe::TEST, "level: 4 stage: 'b' stage: 'a'"),
              ElementsAre("all", "either", "stages"));
  EXPECT_THAT(NamesInPhase(net, caffe::TEST, "stage: 'a' stage: 'b' stage: 'c'"),
              ElementsAre("all", "either"));
}

TEST(CaffeNetTest, InputFieldsOfOlderNets) {
  const NetDescription net = Describe(
      "input: 'data' input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 9"
      " layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'data' }");
  EXPECT_THAT(net.layers[1].tops[0].shape, ElementsAre(1, 3, 8, 9));
}

TEST(CaffeNetTest, ErrorsNameLayerPlaceAndWhatWasExpected) {
  EXPECT_THAT(DescribeError("layer {\n  name: 'c'\n  type: 'Convolutoin'\n}"),
              StartsWith("net.prototxt:3:3: layer \"c\" (Convolutoin): unknown layer type; known "
                         "are AbsVal, Accuracy,"));
  EXPECT_EQ(DescribeError("layer { name: 'r' type: 'ReLU'\n bottom: 'x' top: 'r' }"),
            "net.prototxt:2:2: layer \"r\" (ReLU): bottom \"x\" is no top of a layer before it in "
            "this phase");
  const std::string data = Input({2, 3});
  EXPECT_EQ(DescribeError(data + "layer { name: 'c' type: 'Convolution' bottom: 'data' top: 'c'"
                                 " convolution_param { num_output: 1 kernel_size: 3 } }"),
            "net.prototxt:2:1: layer \"c\" (Convolution): bottom \"data\" is 2 x 3; expected num x "
            "channels x height x width, or 1 to 3 axes after axis 1, the channels");
  EXPECT_THAT(DescribeError(Input({1, 1, 4, 4}) +
                            "layer { name: 'p' type: 'Pooling' bottom: 'data' top: 'p'\n"
                            "  pooling_param { kernel_size: 5 } }"),
              StartsWith("net.prototxt:3:19: layer \"p\" (Pooling): the kernel is larger than "
                         "bottom \"data\", 1 x 1 x 4 x 4"));
  EXPECT_THAT(
      DescribeError(data + "layer { name: 'i' type: 'InnerProduct' bottom: 'data' top: 'i' }"),
      HasSubstr("num_output must be at least 1"));
  EXPECT_THAT(
      DescribeError(data + "layer { name: 'i' type: 'Flatten' bottom: 'data' top: 'data' }"),
      HasSubstr("can't work in place"));
  EXPECT_THAT(DescribeError(data + "layer { name: 'data' type: 'InnerProduct' bottom: 'data'"
                                   " top: 'i' inner_product_param { num_output: 1 } }"),
              HasSubstr("the same name"));
  EXPECT_THAT(DescribeError(data + "layer { name: 'd' type: 'Input' top: 'data'"
                                   " input_param { shape { dim: 1 } } }"),
              HasSubstr("top \"data\" is made by another layer, too"));
  EXPECT_THAT(DescribeError(data + "layer { name: 'r' type: 'ReLU' bottom: 'data' }"),
              HasSubstr("has 0 tops; expected 1"));
  EXPECT_THAT(
      DescribeError(data + Input({3}, "l") +
                    "layer { name: 's' type: 'SoftmaxWithLoss' bottom: 'data' bottom: 'l' }"),
      HasSubstr("bottom \"l\" has 3 labels; expected 2 for bottom \"data\", 2 x 3"));
  EXPECT_THAT(DescribeError(data + "layer { name: 'i' type: 'InnerProduct' bottom: 'data' top: 'i'"
                                   " inner_product_param { num_output: 4 weight_filler {"
                                   " type: 'xaver' } } }"),
              HasSubstr("unknown filler type \"xaver\""));
  EXPECT_THAT(DescribeError(data + "layer { name: 'i' type: 'InnerProduct' bottom: 'data' top: 'i'"
                                   " inner_product_param { num_output: 4294967295 } }"),
              HasSubstr("at most 2^31 - 1 values"));
  EXPECT_EQ(DescribeError(data + "layer { name: 'r' type: 'ReLU' bottom: 'data' top: 'r'\n"
                                 " propagate_down: true propagate_down: false }"),
            "net.prototxt:3:2: layer \"r\" (ReLU): has 2 propagate_down entries; expected one for "
            "each of 1 bottoms");
  EXPECT_THAT(DescribeError(data + "layer { name: 'n' type: 'BatchNorm' bottom: 'data' top: 'n'"
                                   " param { lr_mult: 1 } }"),
              HasSubstr("statistics are not learned: lr_mult must be 0"));
  EXPECT_THAT(DescribeError("layer { name: 'x' type: 'ReLU' include { phase: TEST } }"),
              HasSubstr("no layer is in phase TRAIN"));
}

std::string DataLayer(const std::string& data_param, const std::string& more = "") {
  return "layer { name: 'd' type: 'Data' top: 'data' top: 'label' " + more +
         "\n data_param { source: 'no/such/lmdb'\n backend: LMDB\n " + data_param + " } }";
}

TEST(CaffeNetTest, DataLayers) {
  EXPECT_THAT(DescribeError(DataLayer("batch_size: 0")),
              StartsWith("net.prototxt:4:2: layer \"d\" (Data): batch_size must be at least 1"));
  EXPECT_THAT(DescribeError(DataLayer("")), StartsWith("net.prototxt:2:2: layer \"d\""));
  EXPECT_THAT(DescribeError(DataLayer("batch_size: 1 scale: 2")),
              HasSubstr("belong into transform_param, not data_param"));
  EXPECT_THAT(MessageOf<DataError>([] { Describe(DataLayer("batch_size: 1")); }),
              StartsWith("no/such/lmdb: no LMDB database here"));
  DescribeOptions options;
  options.record_shape = Shape{3, 40, 32};
  options.batch_size = 7;
  const NetDescription net = Describe(
      DataLayer("batch_size: 2", "transform_param { crop_size: 28 }"), caffe::TRAIN, options);
  EXPECT_THAT(net.layers[0].tops[0].shape, ElementsAre(7, 3, 28, 28));
  EXPECT_THAT(net.layers[0].tops[1].shape, ElementsAre(7));
  EXPECT_EQ(net.batch, 7);
  const std::string error = MessageOf<ConfigError>([&] {
    Describe(DataLayer("batch_size: 2", "transform_param { crop_size: 33 }"), caffe::TRAIN,
             options);
  });
  EXPECT_THAT(error, HasSubstr("crop_size is 33, larger than the records, 3 x 40 x 32"));
}

// And not for an extent that the net says itself.
TEST(CaffeNetTest, ABatchThatIsNotTheNetsIsNamedForWhatIsTooLarge) {
  const auto error = [](const std::string& text) {
    DescribeOptions options;
    options.batch_size = 2000000000;
    return MessageOf<ConfigError>([&] { Describe(text, caffe::TRAIN, options); });
  };
  EXPECT_THAT(error(Input({2, 3})),
              EndsWith("at most 2^31 - 1 values; the batch is that of training.batch_per_worker "
                       "(divided by cluster.devices_per_worker) or --batch, not the net's"));
  EXPECT_THAT(error(Input({2, 0})), EndsWith("at most 2^31 - 1 values"));
  EXPECT_THAT(
      error("layer { name: 'p' type: 'Parameter' top: 'p' parameter_param { shape {"
            " dim: 1 dim: 2 } } }"
            "layer { name: 't' type: 'Tile' bottom: 'p' top: 't' tile_param {"
            " axis: 1 tiles: 2000000000 } }"),
      EndsWith("top \"t\" would be 1 x 4000000000; expected extents of at least 1 and at most "
               "2^31 - 1 values"));
}

TEST(CaffeNetTest, LayersThatReadNoFile) {
  const auto shapes_of = [](const std::string& layer) {
    const NetDescription net = Describe("layer { name: 'd' " + layer + " }");
    std::vector<Shape> shapes;
    for (const BlobDescription& top : net.layers[0].tops) shapes.push_back(top.shape);
    return shapes;
  };
  EXPECT_THAT(shapes_of("type: 'DummyData' top: 'x' top: 'y' dummy_data_param { num: 2 num: 4"
                        " channels: 3 height: 5 width: 6 width: 7 }"),
              ElementsAre(Shape{2, 3, 5, 6}, Shape{4, 3, 5, 7}));
  EXPECT_THAT(
      shapes_of("type: 'DummyData' top: 'x' top: 'y' dummy_data_param { shape { dim: 2 } }"),
      ElementsAre(Shape{2}, Shape{2}));
  EXPECT_THAT(shapes_of("type: 'MemoryData' top: 'x' top: 'y' memory_data_param { batch_size: 4"
                        " channels: 3 height: 2 width: 1 }"),
              ElementsAre(Shape{4, 3, 2, 1}, Shape{4}));
  EXPECT_THAT(DescribeError("layer { name: 'd' type: 'DummyData' top: 'x'\n dummy_data_param {"
                            " num: 2 channels: 3 height: 1 shape { dim: 1 } } }"),
              StartsWith("net.prototxt:2:2: layer \"d\" (DummyData): give shape or"));
  EXPECT_THAT(DescribeError("layer { name: 'd' type: 'DummyData' top: 'x'\n dummy_data_param {"
                            " num: 2 channels: 3 height: 1 } }"),
              HasSubstr("there are 0 dummy_data_param.width entries; expected 1 or one for each of "
                        "1 tops"));
  EXPECT_THAT(DescribeError("layer { name: 'd' type: 'MemoryData' top: 'x' top: 'y'"
                            " memory_data_param { batch_size: 4 channels: 3 height: 2 } }"),
              HasSubstr("must all be at least 1; they are 4 x 3 x 2 x 0"));
  EXPECT_THAT(DescribeError("layer { name: 'd' type: 'HDF5Output' bottom: 'x' }"),
              HasSubstr("bottom \"x\" is no top"));
  EXPECT_THAT(DescribeError("layer { name: 'd' type: 'HDF5Output' }"),
              HasSubstr("this layer type is not supported"));
}

TEST(CaffeNetTest, InnerProductWhoseGradientIsAProduct) {
  const NetDescription net =
      Describe(Input({8, 3, 2}) +
               "layer { name: 'a' type: 'InnerProduct' bottom: 'data' top: 'a'"
               " inner_product_param { num_output: 5 } }"
               "layer { name: 'b' type: 'InnerProduct' bottom: 'data' top: 'b'"
               " inner_product_param { num_output: 5 transpose: true } }"
               "layer { name: 'c' type: 'InnerProduct' bottom: 'data' top: 'c'"
               " inner_product_param { num_output: 5 axis: 2 } }"
               "layer { name: 'd' type: 'InnerProduct' bottom: 'a' top: 'd'"
               " inner_product_param { num_output: 2 axis: -1 bias_term: false } }");
  const ModelSpec model = ToModelSpec(net, {});
  EXPECT_EQ(model.batch(), 8);
  EXPECT_EQ(model.layers(0).inner_product().outputs(), 5);
  EXPECT_EQ(model.layers(0).inner_product().inputs(), 6);
  EXPECT_EQ(model.layers(0).inner_product().rows(), 8);
  EXPECT_FALSE(model.layers(1).has_inner_product());
  EXPECT_THAT(model.layers(1).blobs(0).shape(), ElementsAre(6, 5));
  EXPECT_FALSE(model.layers(2).has_inner_product());
  EXPECT_TRUE(model.layers(3).has_inner_product());
  EXPECT_EQ(model.layers(3).blobs_size(), 1);
}

// A pass of a layer that learns is three products of a size; one that does not learn has no
// gradient of its weights, and where nothing below learns, none of its input.
TEST(CaffeNetTest, WhatFrozenLayersComputeCountsToTheLayerBelow) {
  const std::string frozen = " param { lr_mult: 0 } param { lr_mult: 0 } ";
  const NetDescription net =
      Describe(Input({2, 3, 4, 4}) +
               "layer { name: 'a' type: 'Convolution' bottom: 'data' top: 'a'" + frozen +
               "convolution_param { num_output: 4 kernel_size: 1 } }"
               "layer { name: 'b' type: 'Convolution' bottom: 'a' top: 'b'" +
               frozen +
               "convolution_param { num_output: 6 kernel_size: 1 } }"
               "layer { name: 'r' type: 'ReLU' bottom: 'b' top: 'b' }"
               "layer { name: 'fc' type: 'InnerProduct' bottom: 'b' top: 'fc'"
               " inner_product_param { num_output: 6 } }"
               "layer { name: 'n' type: 'BatchNorm' bottom: 'fc' top: 'fc' }"
               "layer { name: 'c' type: 'InnerProduct' bottom: 'fc' top: 'c'" +
               frozen + "inner_product_param { num_output: 5 } }");
  const ModelSpec model = ToModelSpec(net, {});
  ASSERT_EQ(model.layers_size(), 1);
  EXPECT_EQ(model.layers(0).multiply_adds(),
            6 * 6 * 16 + (4 * 3 * 16 + 6 * 4 * 16) / 3 + 6 * 5 * 2 / 3);
}

struct KnownLayer {
  std::string name;
  int64_t weights;
  int64_t bias;
  Shape top;  // without the batch
};

// A model of configs/ against the published numbers of its layers.
void ExpectLayers(const std::string& model_name, const Shape& record,
                  const std::vector<KnownLayer>& known, int64_t parameters) {
  const Solver solver = LoadSolver("configs/models/" + model_name + "/solver.prototxt");
  for (const caffe::Phase phase : {caffe::TRAIN, caffe::TEST}) {
    DescribeOptions options;
    options.record_shape = record;
    const NetDescription net = DescribeNet(solver.train.net, phase, options);
    const ModelSpec model = ToModelSpec(net, solver.parameter);
    ASSERT_EQ(model.layers_size(), static_cast<int>(known.size()));
    for (int i = 0; i < model.layers_size(); ++i) {
      const LayerSpec& layer = model.layers(i);
      EXPECT_EQ(layer.name(), known[i].name);
      const auto count = [&](int b) {
        return Count({layer.blobs(b).shape().begin(), layer.blobs(b).shape().end()});
      };
      EXPECT_EQ(count(0), known[i].weights) << layer.name();
      EXPECT_EQ(count(1), known[i].bias) << layer.name();
      EXPECT_EQ(layer.blobs(0).lr_mult(), 1) << layer.name();
      EXPECT_EQ(layer.blobs(1).lr_mult(), 2) << layer.name();
      EXPECT_EQ(layer.has_inner_product(), layer.type() == "InnerProduct");
      const auto described =
          std::find_if(net.layers.begin(), net.layers.end(),
                       [&](const LayerDescription& each) { return each.name() == layer.name(); });
      Shape top = known[i].top;
      top.insert(top.begin(), net.batch);
      EXPECT_EQ(described->tops[0].shape, top) << layer.name();
    }
    EXPECT_EQ(ParameterCount(model), parameters);
  }
}

TEST(CaffeNetTest, LeNetHasItsPublishedParameters) {
  ExpectLayers("lenet", {1, 28, 28},
               {{"conv1", 500, 20, {20, 24, 24}},
                {"conv2", 25000, 50, {50, 8, 8}},
                {"ip1", 400000, 500, {500}},
                {"ip2", 5000, 10, {10}}},
               431080);
}

TEST(CaffeNetTest, Cifar10QuickHasItsPublishedParameters) {
  ExpectLayers("cifar10_quick", {3, 32, 32},
               {{"conv1", 2400, 32, {32, 32, 32}},
                {"conv2", 25600, 32, {32, 16, 16}},
                {"conv3", 51200, 64, {64, 8, 8}},
                {"ip1", 65536, 64, {64}},
                {"ip2", 640, 10, {10}}},
               145578);
}

}  // namespace
}  // namespace poseidon
