// What shape inference makes of each layer type, and what it refuses: messages name the layer and
// what is wrong, places the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/net.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// One layer of text on Input layers of these shapes, called "a", "b", ... A layer's first line is
// that of its type, its fields begin on the second.
LayerDescription Layer(const std::string& type, const std::vector<Shape>& bottoms,
                       const std::string& fields = "") {
  std::string text = "layer { name: 'it' type: '" + type + "'\n" + fields;
  std::string inputs;
  for (size_t i = 0; i < bottoms.size(); ++i) {
    const std::string name(1, static_cast<char>('a' + i));
    inputs +=
        "layer { name: '" + name + "' type: 'Input' top: '" + name + "' input_param { shape {";
    for (const int64_t extent : bottoms[i]) inputs += " dim: " + std::to_string(extent);
    inputs += " } } } ";
    text += " bottom: '" + name + "'";
  }
  const LayerType* known = FindLayerType(type);
  if (fields.find("top:") == std::string::npos && known && known->tops.max > 0)
    text += " top: 'top'";
  caffe::NetParameter net;
  const TextLocations locations = ParseText(inputs + text + " }", "net.prototxt", net);
  DescribeOptions options;
  options.locate = [&](const std::string& path) { return locations.Find(net, path); };
  return DescribeNet(net, caffe::TRAIN, options).layers.back();
}

Shape Top(const std::string& type, const std::vector<Shape>& bottoms,
          const std::string& fields = "") {
  return Layer(type, bottoms, fields).tops[0].shape;
}

std::vector<Shape> Parameters(const std::string& type, const std::vector<Shape>& bottoms,
                              const std::string& fields = "") {
  std::vector<Shape> shapes;
  for (const ParameterDescription& parameter : Layer(type, bottoms, fields).parameters) {
    shapes.push_back(parameter.shape);
  }
  return shapes;
}

std::string ErrorOf(const std::string& type, const std::vector<Shape>& bottoms,
                    const std::string& fields = "") {
  return MessageOf<ConfigError>([&] { Layer(type, bottoms, fields); });
}

TEST(CaffeShapesTest, Convolution) {
  const std::string fields = "convolution_param { num_output: 6 group: 2 kernel_size: 3 stride: 2 ";
  EXPECT_THAT(Top("Convolution", {{2, 4, 7, 8}}, fields + "}"), ElementsAre(2, 6, 3, 3));
  EXPECT_THAT(Top("Convolution", {{2, 4, 7}}, fields + "}"), ElementsAre(2, 6, 3));
  EXPECT_THAT(Top("Convolution", {{2, 4, 7, 8, 9}}, fields + "pad: 1 pad: 0 pad: 2 }"),
              ElementsAre(2, 6, 4, 3, 6));
  EXPECT_THAT(Top("Convolution", {{5, 2, 4, 7, 8}}, fields + "axis: -3 }"),
              ElementsAre(5, 2, 6, 3, 3));
  EXPECT_THAT(Parameters("Convolution", {{2, 4, 7}}, fields + "}"),
              ElementsAre(ElementsAre(6, 2, 3), ElementsAre(6)));
  EXPECT_EQ(Layer("Convolution", {{2, 4, 7, 8}, {2, 4, 7, 8}}, fields + "} top: 'x' top: 'y'")
                .tops.size(),
            2u);
}

TEST(CaffeShapesTest, Deconvolution) {
  const std::string fields = "convolution_param { num_output: 6 group: 2 kernel_size: 4 stride: 2 ";
  EXPECT_THAT(Top("Deconvolution", {{2, 4, 7, 8}}, fields + "pad: 1 }"), ElementsAre(2, 6, 14, 16));
  EXPECT_THAT(Top("Deconvolution", {{2, 4, 7}}, fields + "dilation: 2 }"), ElementsAre(2, 6, 19));
  EXPECT_THAT(Parameters("Deconvolution", {{2, 4, 7, 8}}, fields + "bias_term: false }"),
              ElementsAre(ElementsAre(4, 3, 4, 4)));
  EXPECT_THAT(ErrorOf("Deconvolution", {{2, 4, 1, 1}}, fields + "\n pad: 2 }"),
              StartsWith("net.prototxt:3:2: layer \"it\" (Deconvolution): pad leaves nothing"));
}

TEST(CaffeShapesTest, ConvolutionErrors) {
  const auto error = [](const Shape& bottom, const std::string& fields) {
    return ErrorOf("Convolution", {bottom}, "convolution_param { num_output: 2 " + fields + " }");
  };
  EXPECT_THAT(error({2, 4, 8, 8}, "\n kernel_size: 3 kernel_size: 3 kernel_size: 3"),
              StartsWith("net.prototxt:3:2: layer \"it\" (Convolution): kernel_size has 3 values; "
                         "expected 1 or one for each of 2 directions"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_size: 3 kernel_h: 3"), HasSubstr("given twice"));
  EXPECT_THAT(error({2, 4, 8}, "kernel_h: 3 kernel_w: 3"), HasSubstr("needs a 2-D convolution"));
  EXPECT_THAT(error({2, 4, 8, 8}, ""), HasSubstr("kernel_size must be at least 1"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_h: 3"), HasSubstr("kernel_size must be at least 1"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_size: 3 stride: 0"),
              HasSubstr("stride must be at least"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_size: 3 pad: 4294967295"), HasSubstr("less than 2^31"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_size: 9"), HasSubstr("the kernel is larger than bottom"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_size: 1 group: 3"),
              HasSubstr("group is 3; it must divide the bottom's 4 channels and num_output, 2"));
  EXPECT_THAT(error({2, 4}, "kernel_size: 1"), HasSubstr("expected num x channels x height"));
  EXPECT_THAT(error({2, 4, 8, 8}, "kernel_size: 1 axis: 4"), HasSubstr("axis is 4, but bottom"));
  EXPECT_THAT(ErrorOf("Convolution", {{2, 4, 7, 8}, {2, 4, 7, 8}},
                      "convolution_param { num_output: 2 kernel_size: 1 }"),
              HasSubstr("has 2 bottoms and 1 tops"));
  EXPECT_THAT(ErrorOf("Convolution", {{2, 4, 7, 8}, {2, 4, 8, 8}},
                      "top: 'x' top: 'y' convolution_param { num_output: 2 kernel_size: 1 }"),
              HasSubstr("bottom \"b\", 2 x 4 x 8 x 8, has another shape than bottom \"a\""));
}

TEST(CaffeShapesTest, Im2col) {
  EXPECT_THAT(Top("Im2col", {{2, 3, 7, 8}}, "convolution_param { kernel_h: 2 kernel_w: 3 }"),
              ElementsAre(2, 18, 6, 6));
  EXPECT_THAT(ErrorOf("Im2col", {{2, 3, 7, 8}}), HasSubstr("kernel_size must be at least 1"));
}

TEST(CaffeShapesTest, Pooling) {
  const auto pooled = [](int64_t extent, const std::string& fields) {
    return Top("Pooling", {{1, 1, extent, extent}}, "pooling_param { " + fields + " }")[2];
  };
  EXPECT_EQ(pooled(6, "kernel_size: 3 stride: 2"), 3);  // up
  EXPECT_EQ(pooled(6, "kernel_size: 3 stride: 2 round_mode: FLOOR"), 2);
  EXPECT_EQ(pooled(6, "kernel_size: 3 stride: 2 ceil_mode: false"), 2);
  EXPECT_EQ(pooled(6, "kernel_size: 3 stride: 2 ceil_mode: true"), 3);
  EXPECT_EQ(pooled(4, "kernel_size: 5 stride: 2"), 1);  // up, from less than nothing
  EXPECT_EQ(pooled(4, "kernel_size: 2 stride: 2 pad: 1"), 3);
  EXPECT_EQ(
      Layer("Pooling", {{1, 2, 6, 6}}, "top: 'x' top: 'mask' pooling_param { kernel_size: 2 }")
          .tops[1]
          .shape,
      (Shape{1, 2, 5, 5}));
  const auto error = [](const std::string& fields, const std::string& tops = "top: 'x'") {
    return ErrorOf("Pooling", {{1, 2, 4, 4}}, tops + " pooling_param { " + fields + " }");
  };
  EXPECT_THAT(error("kernel_size: 5 stride: 2 round_mode: FLOOR"), HasSubstr("larger than bottom"));
  EXPECT_THAT(error("kernel_size: 1 stride: 4"),
              HasSubstr("the last window is outside of bottom \"a\", 1 x 2 x 4 x 4"));
  EXPECT_THAT(error("kernel_size: 2 ceil_mode: true round_mode: CEIL"),
              HasSubstr("give round_mode or ceil_mode, not both"));
  EXPECT_THAT(error("kernel_size: 2 kernel_h: 2 kernel_w: 2"), HasSubstr("either kernel_size or"));
  EXPECT_THAT(error("kernel_size: 2 pad: 2"), HasSubstr("pad must be smaller than the kernel"));
  EXPECT_THAT(error("kernel_size: 2 pad: 1 pool: STOCHASTIC"), HasSubstr("takes no padding"));
  EXPECT_THAT(error("kernel_size: 2 pool: AVE", "top: 'x' top: 'mask'"),
              HasSubstr("only MAX pooling has a second top"));
  EXPECT_THAT(error("global_pooling: true kernel_size: 2"), HasSubstr("takes no kernel size"));
  EXPECT_THAT(error("global_pooling: true stride: 2"), HasSubstr("pad 0 and stride 1 only"));
}

TEST(CaffeShapesTest, LayersWithParameters) {
  const Shape x = {2, 3, 4, 5};
  EXPECT_THAT(Top("Embed", {{2, 7}}, "embed_param { num_output: 4 input_dim: 9 }"),
              ElementsAre(2, 7, 4));
  EXPECT_THAT(Parameters("Embed", {{2, 7}}, "embed_param { num_output: 4 input_dim: 9 }"),
              ElementsAre(ElementsAre(9, 4), ElementsAre(4)));
  EXPECT_THAT(ErrorOf("Embed", {{2}}, "embed_param { num_output: 4 }"),
              HasSubstr("input_dim must be at least 1"));
  EXPECT_THAT(Parameters("Scale", {x}), ElementsAre(ElementsAre(3)));
  EXPECT_THAT(Parameters("Scale", {x}, "scale_param { axis: 2 num_axes: -1 bias_term: true }"),
              ElementsAre(ElementsAre(4, 5), ElementsAre(4, 5)));
  EXPECT_THAT(Parameters("Scale", {x, {3, 4}}, "scale_param { bias_term: true }"),
              ElementsAre(ElementsAre(3, 4)));
  EXPECT_THAT(Parameters("Scale", {x, {}}), IsEmpty());
  EXPECT_THAT(ErrorOf("Scale", {x, {4}}), HasSubstr("bottom \"b\" is 4; expected 3"));
  EXPECT_THAT(ErrorOf("Scale", {x}, "scale_param { axis: 3\n num_axes: 2 }"),
              StartsWith("net.prototxt:3:2: layer \"it\" (Scale): 2 axes from axis 3 are not in "
                         "bottom \"a\", 2 x 3 x 4 x 5"));
  EXPECT_THAT(Parameters("Bias", {x}, "bias_param { num_axes: 0 }"), ElementsAre(IsEmpty()));
  EXPECT_THAT(Parameters("PReLU", {x}), ElementsAre(ElementsAre(3)));
  EXPECT_THAT(Parameters("PReLU", {x}, "prelu_param { channel_shared: true }"),
              ElementsAre(IsEmpty()));
  EXPECT_EQ(Layer("PReLU", {x}).parameters[0].filler.value(), 0.25F);
  EXPECT_THAT(ErrorOf("PReLU", {{3}}), HasSubstr("bottom \"a\", 3, has no axis 1"));
  EXPECT_THAT(Parameters("BatchNorm", {x}),
              ElementsAre(ElementsAre(3), ElementsAre(3), ElementsAre(1)));
  EXPECT_THAT(ErrorOf("BatchNorm", {x}, "param { lr_mult: 0 } param { lr_mult: 1 }"),
              HasSubstr("statistics are not learned: lr_mult must be 0"));
  EXPECT_THAT(Parameters("Parameter", {}, "parameter_param { shape { dim: 2 dim: 3 } }"),
              ElementsAre(ElementsAre(2, 3)));
}

TEST(CaffeShapesTest, Neurons) {
  for (const char* type : {"AbsVal", "BNLL", "ELU", "Exp", "Log", "Power", "Swish", "Threshold"}) {
    EXPECT_THAT(Top(type, {{2, 3}}, "top: 'a'"), ElementsAre(2, 3)) << type;  // in place
  }
  EXPECT_THAT(ErrorOf("Exp", {{2}}, "exp_param { base: -2 }"), HasSubstr("base is -2.0"));
  EXPECT_THAT(ErrorOf("Log", {{2}}, "log_param { base: 1 }"), HasSubstr("no logarithm to base 1"));
  EXPECT_THAT(ErrorOf("Dropout", {{2}}, "dropout_param { dropout_ratio: 1 }"),
              HasSubstr("dropout_ratio is 1.0"));
}

TEST(CaffeShapesTest, BlobsOfAnyShape) {
  EXPECT_THAT(Top("Reduction", {{2, 3, 4}}), IsEmpty());
  EXPECT_THAT(Top("Reduction", {{2, 3, 4}}, "reduction_param { axis: -1 }"), ElementsAre(2, 3));
  EXPECT_THAT(Top("ArgMax", {{2, 3}}), ElementsAre(2, 1, 1));
  EXPECT_THAT(Top("ArgMax", {{2, 3, 4, 5}}, "argmax_param { top_k: 7 out_max_val: true }"),
              ElementsAre(2, 2, 7, 1));
  EXPECT_THAT(Top("ArgMax", {{2, 3, 4}}, "argmax_param { top_k: 2 axis: 1 }"),
              ElementsAre(2, 2, 4));
  EXPECT_THAT(ErrorOf("ArgMax", {{2, 3}}, "argmax_param { top_k: 4 }"),
              HasSubstr("top_k is 4; expected 1 to 3"));
  EXPECT_THAT(Top("Axpy", {{2, 3, 1, 1}, {2, 3, 4, 5}, {2, 3, 4, 5}}), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(
      ErrorOf("Axpy", {{2, 4}, {2, 3, 4, 5}, {2, 3, 4, 5}}),
      HasSubstr("bottom \"a\", 2 x 4, should have a value for each channel of bottom \"b\""));
  EXPECT_THAT(ErrorOf("Axpy", {{2, 3}, {2, 3, 4, 5}, {2, 3, 4, 4}}),
              HasSubstr("bottom \"c\", 2 x 3 x 4 x 4, has another shape than bottom \"b\""));
  EXPECT_THAT(Top("MVN", {{2, 3}}), ElementsAre(2, 3, 1, 1));
  EXPECT_THAT(ErrorOf("MVN", {{1, 1, 1, 1, 1}}), HasSubstr("expected at most 4 axes"));
  EXPECT_THAT(ErrorOf("Eltwise", {{2}, {2}}, "eltwise_param { operation: PROD coeff: 1 coeff: 2 }"),
              HasSubstr("coeff does not go with operation PROD"));
  EXPECT_THAT(ErrorOf("Eltwise", {{2}, {2}}, "eltwise_param { coeff: 1 }"),
              HasSubstr("coeff has 1 values; expected one for each of 2 bottoms"));
}

TEST(CaffeShapesTest, Slice) {
  const auto slice = [](const std::string& fields) {
    std::vector<int64_t> extents;
    const std::string tops = "top: 'x' top: 'y' top: 'z' slice_param { ";
    for (const BlobDescription& top : Layer("Slice", {{9, 6}}, tops + fields + "}").tops) {
      extents.push_back(top.shape[top.shape[0] == 9 ? 1 : 0]);
    }
    return extents;
  };
  EXPECT_THAT(slice(""), ElementsAre(2, 2, 2));
  EXPECT_THAT(slice("axis: 0"), ElementsAre(3, 3, 3));
  EXPECT_THAT(slice("slice_point: 1 slice_point: 4"), ElementsAre(1, 3, 2));
  const auto error = [](const std::string& fields) {
    return ErrorOf("Slice", {{9, 5}}, "top: 'x' top: 'y' slice_param { " + fields + " }");
  };
  EXPECT_THAT(error(""), HasSubstr("the 5 places of the axis don't divide into 2 tops"));
  EXPECT_THAT(error("\n slice_point: 1 slice_point: 2"),
              StartsWith("net.prototxt:3:2: layer \"it\" (Slice): there are 2 of slice_point"));
  EXPECT_THAT(error("slice_point: 5"), HasSubstr("slice_point must rise from 1 to less than 5"));
  EXPECT_THAT(error("slice_point: 1 axis: 1 slice_dim: 1"), HasSubstr("not both"));
}

TEST(CaffeShapesTest, Reshape) {
  const auto shape = [](const std::string& fields) {
    return Top("Reshape", {{2, 8}}, "reshape_param { " + fields + " }");
  };
  // Caffe's own examples, of its documentation of reshape_param.
  for (const char* same : {"shape { dim: 2 dim: 2 dim: 4 }", "shape { dim: 0 dim: 2 dim: 4 }",
                           "shape { dim: 0 dim: 2 dim: -1 }", "shape { dim: 0 dim: -1 dim: 4 }",
                           "shape { dim: 2 dim: 4 } axis: 1", "shape { dim: 2 dim: 4 } axis: -2"}) {
    EXPECT_THAT(shape(same), ElementsAre(2, 2, 4)) << same;
  }
  EXPECT_THAT(shape("shape { dim: 1 } num_axes: 0"), ElementsAre(1, 2, 8));
  EXPECT_THAT(shape("shape { dim: 1 } axis: 1 num_axes: 0"), ElementsAre(2, 1, 8));
  EXPECT_THAT(shape("shape { dim: 1 } axis: -1 num_axes: 0"), ElementsAre(2, 8, 1));
  const auto error = [](const std::string& fields) {
    return ErrorOf("Reshape", {{2, 8}}, "reshape_param { " + fields + " }");
  };
  EXPECT_THAT(error("shape { dim: 3 dim: -1 }"), HasSubstr("the 16 values of bottom \"a\", 2 x 8"));
  EXPECT_THAT(error("shape { dim: 2 dim: 4 }"), HasSubstr("don't make up 2 x 4"));
  EXPECT_THAT(error("shape { dim: -1 dim: -1 }"), HasSubstr("only one dim can be -1"));
  EXPECT_THAT(error("shape { dim: 0 dim: 0 dim: 0 }"),
              HasSubstr("dim 0 keeps the extent of axis 2"));
  EXPECT_THAT(error("axis: 3"), HasSubstr("axis is 3"));
  EXPECT_THAT(error("axis: 1 num_axes: 2"), HasSubstr("2 axes from axis 1 are not in"));
  EXPECT_THAT(error("axis: 1 num_axes: 2147483647"),
              HasSubstr("2147483647 axes from axis 1 are not in"));
  EXPECT_THAT(error("shape { dim: 4611686018427387904 dim: 4 }"), HasSubstr("don't make up"));
}

TEST(CaffeShapesTest, OtherLayersThatMoveValues) {
  const Shape x = {2, 3, 6, 7};
  EXPECT_THAT(Top("Crop", {x, {1, 1, 4, 5}}), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(Top("Crop", {x, {1, 2, 4, 5}}, "crop_param { axis: 1 offset: 1 }"),
              ElementsAre(2, 2, 4, 5));
  EXPECT_THAT(ErrorOf("Crop", {x, {1, 1, 4, 5}}, "crop_param { offset: 3 }"),
              HasSubstr("4 places from offset 3 on are not in axis 2 of bottom \"a\""));
  EXPECT_THAT(ErrorOf("Crop", {x, {1, 1, 4, 5}}, "crop_param { axis: 1 offset: 0 offset: 0 }"),
              HasSubstr("expected 1 or one for each of the 3 axes"));
  EXPECT_THAT(ErrorOf("Crop", {x, {4, 5}}), HasSubstr("has fewer axes than"));
  EXPECT_THAT(Top("Tile", {x}, "tile_param { tiles: 3 axis: -1 }"), ElementsAre(2, 3, 6, 21));
  EXPECT_THAT(ErrorOf("Tile", {x}), HasSubstr("tiles must be at least 1"));
  EXPECT_THAT(Top("BatchReindex", {x, {5}}), ElementsAre(5, 3, 6, 7));
  EXPECT_THAT(ErrorOf("BatchReindex", {x, {5, 1}}), HasSubstr("along one axis only"));
  EXPECT_THAT(Layer("Silence", {x, {5}}).tops, IsEmpty());
  EXPECT_THAT(Top("Flatten", {x}, "flatten_param { axis: 2 end_axis: 1 }"),
              ElementsAre(2, 3, 1, 6, 7));
  EXPECT_THAT(ErrorOf("Concat", {x, x}, "concat_param { axis: 1 concat_dim: 1 }"),
              HasSubstr("give axis or concat_dim, not both"));
  EXPECT_THAT(ErrorOf("Concat", {x, x}, "concat_param { concat_dim: 4 }"),
              HasSubstr("concat_dim is 4, but bottom"));
}

TEST(CaffeShapesTest, Losses) {
  const std::string two_tops = "top: 'loss' top: 'probabilities' ";
  for (const char* type : {"SoftmaxWithLoss", "HingeLoss", "MultinomialLogisticLoss"}) {
    EXPECT_THAT(Top(type, {{4, 3}, {4}}), IsEmpty()) << type;
    EXPECT_EQ(Layer(type, {{4, 3}, {4}}).loss_weights[0], 1) << type;
    EXPECT_THAT(ErrorOf(type, {{4, 3}, {3}}), HasSubstr("bottom \"b\"")) << type;
  }
  EXPECT_THAT(Layer("SoftmaxWithLoss", {{4, 3, 5}, {4, 5}}, two_tops).tops[1].shape,
              ElementsAre(4, 3, 5));
  EXPECT_THAT(ErrorOf("SoftmaxWithLoss", {{4, 3, 5}, {20}}), HasSubstr("as many samples"));
  EXPECT_THAT(Top("InfogainLoss", {{4, 3}, {4}, {3, 3}}), IsEmpty());
  EXPECT_THAT(ErrorOf("InfogainLoss", {{4, 3}, {4}}), HasSubstr("the infogain matrix is missing"));
  EXPECT_THAT(ErrorOf("InfogainLoss", {{4, 3}, {4}, {9, 3}}),
              HasSubstr("expected a matrix of 3 x 3 classes"));
  EXPECT_THAT(ErrorOf("InfogainLoss", {{4, 3}, {4}, {3, 3}}, "loss_param { normalize: true }"),
              HasSubstr("has normalization, not normalize"));
  EXPECT_THAT(Top("EuclideanLoss", {{4, 3, 2}, {4, 6}}), IsEmpty());
  EXPECT_THAT(ErrorOf("EuclideanLoss", {{4, 3}, {4, 2}}), HasSubstr("as many values as bottom"));
  EXPECT_THAT(ErrorOf("SigmoidCrossEntropyLoss", {{4, 3}, {3, 4}}), HasSubstr("as many samples"));
  EXPECT_THAT(Top("ContrastiveLoss", {{4, 3}, {4, 3, 1, 1}, {4}}), IsEmpty());
  EXPECT_THAT(ErrorOf("ContrastiveLoss", {{4, 3, 2}, {4, 3, 2}, {4}}),
              HasSubstr("expected samples x features"));
  EXPECT_THAT(ErrorOf("ContrastiveLoss", {{4, 3}, {4, 3}, {3}}),
              HasSubstr("bottom \"c\" is 3; expected one value for each of 4 pairs"));
  EXPECT_THAT(ErrorOf("Accuracy", {{4, 3}, {4}}, "accuracy_param { top_k: 4 }"),
              HasSubstr("top_k is 4; expected 1 to the number of classes, 3"));
}

// Parameters in the order in which a .caffemodel of Caffe has them.
TEST(CaffeShapesTest, RecurrentLayers) {
  const std::string fields = "recurrent_param { num_output: 5 ";
  const Shape x = {7, 2, 3, 4};
  const Shape goes_on = {7, 2};
  EXPECT_THAT(Top("LSTM", {x, goes_on}, fields + "}"), ElementsAre(7, 2, 5));
  EXPECT_THAT(Parameters("LSTM", {x, goes_on}, fields + "}"),
              ElementsAre(Shape{20, 12}, Shape{20}, Shape{20, 5}));
  EXPECT_THAT(Parameters("LSTM", {x, goes_on, {2, 6}}, fields + "}"),
              ElementsAre(Shape{20, 12}, Shape{20}, Shape{20, 6}, Shape{20, 5}));
  EXPECT_THAT(Parameters("RNN", {x, goes_on, {2, 3, 2}}, fields + "}"),
              ElementsAre(Shape{5, 12}, Shape{5}, Shape{5, 6}, Shape{5, 5}, Shape{5, 5}, Shape{5}));
  const LayerDescription exposed =
      Layer("LSTM", {x, goes_on, {1, 2, 5}, {1, 2, 5}},
            fields + "expose_hidden: true } top: 'h' top: 'i' top: 'j'");
  EXPECT_EQ(exposed.tops[2].shape, (Shape{1, 2, 5}));
  EXPECT_EQ(exposed.parameters.size(), 3);
  EXPECT_EQ(Layer("LSTMUnit", {{1, 2, 5}, {1, 2, 20}, {1, 2}}, "top: 'u' top: 'v'").tops[1].shape,
            (Shape{1, 2, 5}));
}

TEST(CaffeShapesTest, RecurrentLayersErrors) {
  const std::string fields = "recurrent_param { num_output: 5 ";
  EXPECT_THAT(ErrorOf("LSTM", {{7, 2}, {7, 2}}, fields + "}"),
              HasSubstr("bottom \"a\", 7 x 2, should be time steps x streams x inputs"));
  EXPECT_THAT(ErrorOf("LSTM", {{7, 2, 3}, {7, 2}}), HasSubstr("num_output must be at least 1"));
  EXPECT_THAT(ErrorOf("RNN", {{7, 2, 3}, {7, 3}}, fields + "}"),
              HasSubstr("bottom \"b\", 7 x 3, should be the sequence indicators: 7 x 2"));
  EXPECT_THAT(ErrorOf("LSTM", {{7, 2, 3}, {7, 2}, {3, 4}}, fields + "}"),
              HasSubstr("bottom \"c\", 3 x 4, should be streams x static inputs, with 2 streams"));
  EXPECT_THAT(ErrorOf("LSTM", {{7, 2, 3}, {7, 2}, {1, 2, 5}, {1, 2, 5}}, fields + "}"),
              HasSubstr("has 4 bottoms; expected 2 or 3: x, the sequence indicators"));
  EXPECT_THAT(ErrorOf("LSTM", {{7, 2, 3}, {7, 2}, {1, 2, 5}, {1, 2, 5}},
                      fields + "expose_hidden: true } top: 'h'"),
              HasSubstr("has 1 tops; expected 3"));
  EXPECT_THAT(ErrorOf("RNN", {{7, 2, 3}, {7, 2}, {2, 5}},
                      fields + "expose_hidden: true } top: 'h' top: 'i'"),
              HasSubstr("bottom \"c\", 2 x 5, should be a state before the first step: 1 x 2 x 5"));
  EXPECT_THAT(ErrorOf("LSTMUnit", {{1, 2, 5}, {1, 2, 5}, {1, 2}}, "top: 'c' top: 'h'"),
              HasSubstr("bottom \"b\", 1 x 2 x 5, should be the gate inputs: 1 x 2 x 20"));
}

TEST(CaffeShapesTest, Pyramids) {
  const Shape image = {2, 3, 8, 7};
  EXPECT_THAT(Top("SPP", {image}, "spp_param { pyramid_height: 1 }"), ElementsAre(2, 3, 1, 1));
  EXPECT_THAT(Top("SPP", {image}, "spp_param { pyramid_height: 3 }"), ElementsAre(2, 3 * 21));
  EXPECT_THAT(ErrorOf("SPP", {image}), HasSubstr("pyramid_height must be at least 1"));
  EXPECT_THAT(
      ErrorOf("SPP", {image}, "spp_param { pyramid_height: 9 }"),
      HasSubstr("level 3 cuts images into 2^3 rows and columns, too many for bottom \"a\""));
  EXPECT_THAT(ErrorOf("SPP", {image}, "spp_param { pyramid_height: 2 pool: STOCHASTIC }"),
              HasSubstr("STOCHASTIC pooling takes no padding, but level 1 pads bottom \"a\""));
}

TEST(CaffeShapesTest, Filter) {
  const LayerDescription filter = Layer("Filter", {{4, 3, 2}, {4}, {4, 1}}, "top: 'x' top: 'y'");
  EXPECT_EQ(filter.tops[0].shape, (Shape{4, 3, 2}));
  EXPECT_EQ(filter.tops[1].shape, (Shape{4}));
  EXPECT_THAT(ErrorOf("Filter", {{4, 3}, {4}}, "top: 'x' top: 'y'"),
              HasSubstr("has 2 tops; expected 1, one for each bottom but the selector, the last"));
  EXPECT_THAT(ErrorOf("Filter", {{4, 3}, {4, 2}}),
              HasSubstr("bottom \"b\", 4 x 2, should have one value for each sample"));
  EXPECT_THAT(ErrorOf("Filter", {{5, 3}, {4}}),
              HasSubstr("bottom \"a\", 5 x 3, should have as many samples as bottom \"b\", 4"));
}

// What reads filtered samples behind them, on bottoms "some" and "chosen" of one Filter layer,
// "other" of a second one, and "all", which is not filtered.
std::string ErrorBehindFilter(const std::string& layer) {
  caffe::NetParameter net;
  const auto filter = [](const std::string& name, const std::string& tops) {
    return "layer { name: '" + name +
           "' type: 'Filter' bottom: 'all' bottom: 'numbers'"
           " bottom: 'selector' " +
           tops + " } ";
  };
  ParseText(
      "layer { name: 'in' type: 'Input' top: 'all' top: 'numbers' top: 'selector' input_param {"
      " shape { dim: 4 dim: 3 } shape { dim: 4 } shape { dim: 4 } } } " +
          filter("f", "top: 'some' top: 'chosen'") + filter("g", "top: 'other' top: 'rest'") +
          "layer { name: 'ip' type: 'InnerProduct' bottom: 'some' top: 'ip'"
          " inner_product_param { num_output: 4 } } layer { name: 'it' " +
          layer + " }",
      "net.prototxt", net);
  return MessageOf<ConfigError>([&] { DescribeNet(net, caffe::TRAIN); });
}

TEST(CaffeShapesTest, WhatComesThroughAFilterHasAsManySamplesAsPass) {
  EXPECT_EQ(ErrorBehindFilter("type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'chosen'"), "");
  EXPECT_EQ(ErrorBehindFilter("type: 'Silence' bottom: 'all' bottom: 'ip'"), "");
  EXPECT_THAT(ErrorBehindFilter("type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'numbers'"),
              HasSubstr("bottom \"ip\" has other samples, those that layer \"f\" lets pass, than "
                        "bottom \"numbers\", all of the batch"));
  EXPECT_THAT(ErrorBehindFilter("type: 'EuclideanLoss' bottom: 'some' bottom: 'other'"),
              HasSubstr("than bottom \"other\", those that layer \"g\" lets pass"));
  EXPECT_THAT(
      ErrorBehindFilter("type: 'BatchNorm' bottom: 'ip' top: 'x'"),
      HasSubstr("layer \"f\" (Filter) decides how many samples bottom \"ip\" has, which this "
                "layer type has to know from the start; AbsVal, Accuracy,"));
  EXPECT_THAT(ErrorBehindFilter("type: 'Softmax' bottom: 'ip' top: 'x'"),
              HasSubstr("has to know from the start"));
  EXPECT_THAT(ErrorBehindFilter("type: 'Filter' bottom: 'ip' bottom: 'chosen' top: 'x'"),
              HasSubstr("bottom \"ip\" comes through a Filter layer already"));
  EXPECT_THAT(ErrorBehindFilter("type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'chosen' top: 'x'"
                                " softmax_param { axis: 0 }"),
              HasSubstr("classes can't lie along axis 0"));
}

TEST(CaffeShapesTest, TypesThatAreRefusedSayWhy) {
  EXPECT_THAT(ErrorOf("Recurrent", {{2, 3}, {2, 3}}), StartsWith("net.prototxt:1:"));
  EXPECT_THAT(ErrorOf("Recurrent", {{2, 3}, {2, 3}}),
              HasSubstr("layer \"it\" (Recurrent): this layer type is not supported: it is what"));
  EXPECT_THAT(ErrorOf("HDF5Output", {}), HasSubstr("nothing else reads them. A Caffe of your own"));
  EXPECT_THAT(ErrorOf("PriorBox", {}), HasSubstr("unknown layer type; SSD's fork of Caffe has it"));
  EXPECT_THAT(ErrorOf("ReLU6", {}), HasSubstr("Clip with min: 0 and max: 6 computes the same"));
  EXPECT_THAT(ErrorOf("Nonsense", {}), HasSubstr("unknown layer type; known are AbsVal, Accuracy"));
  for (const LayerType& type : LayerTypes()) {
    if (type.refused.empty()) continue;
    EXPECT_THAT(ErrorOf(std::string(type.name), {{2, 3}}), HasSubstr(std::string(type.refused)));
    EXPECT_THAT(LayerTypeNames() + ",", Not(HasSubstr(" " + std::string(type.name) + ",")));
  }
}

TEST(CaffeShapesTest, TheTableIsSorted) {
  for (size_t i = 1; i < LayerTypes().size(); ++i) {
    EXPECT_LT(LayerTypes()[i - 1].name, LayerTypes()[i].name);
  }
}

}  // namespace
}  // namespace poseidon
