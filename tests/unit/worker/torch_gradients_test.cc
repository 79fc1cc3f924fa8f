// The gradient of every layer type against finite differences in double precision, on random
// shapes and several settings of each. A type in the table of layer types that has no case here
// fails, so that none is forgotten.
#include <functional>
#include <map>

#include "tests/unit/worker/torch_layer_testing.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

using Bools = std::vector<bool>;

// For settings that have kinks at whole numbers: values are never near one.
at::Tensor AwayFromOnes(const Shape& shape) {
  const at::Tensor x = RandomTensor(shape);
  return at::where((x.abs() - 1).abs().lt(0.01), x * 1.1, x);
}

at::Tensor Positive(const Shape& shape) { return RandomTensor(shape) + 2.5; }

Shape RandomImages() { return {Draw(1, 2), Draw(2, 4), Draw(4, 6), Draw(4, 6)}; }

// A layer of one bottom of several shapes, once for each setting.
void CheckEach(const std::string& type, const std::vector<std::string>& settings,
               const GradientCheck& check = {}) {
  for (const std::string& setting : settings) {
    for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{4, 3}, Shape{2, 2, 5}}) {
      CheckGradients(Subject("type: '" + type + "' " + setting, {AwayFromOnes(shape)}), check);
    }
  }
}

std::function<void()> Each(const std::string& type, std::vector<std::string> settings = {""}) {
  return [=] { CheckEach(type, settings); };
}

// The bottom depends on learned parameters and a loss on the top.
void ExpectNoGradient(const std::string& text, const Tensors& bottoms) {
  const Subject subject(text, bottoms);
  Tensors weights;
  for (const at::Tensor& top : subject.Forward()) weights.push_back(at::ones_like(top));
  EXPECT_THAT([&] { subject.Backward(weights, at::kDouble); },
              ThrowsMessage<ConfigError>(HasSubstr("this layer type has no gradient")));
}

// --- By family. ---

void Convolutions(const std::string& type) {
  const std::vector<std::pair<std::string, Shape>> cases = {
      {"num_output: 4 kernel_size: 3", {2, 3, 5, 6}},
      {"num_output: 4 kernel_size: 2 group: 2 stride: 2 pad: 1 dilation: 2", {2, 4, 5, 6}},
      {"num_output: 2 kernel_h: 1 kernel_w: 3 pad_w: 2 stride_h: 2 bias_term: false"
       " stride_w: 1 pad_h: 0",
       {1, 3, 4, 5}},
      {"num_output: 3 kernel_size: 3 stride: 2 pad: 1", {2, 2, 7}},
      {"num_output: 2 kernel_size: 2 kernel_size: 1 kernel_size: 3 stride: 1 stride: 2 stride: 1",
       {1, 2, 3, 3, 4}},
      {"num_output: 2 kernel_size: 2 axis: 2", {2, 2, 3, 4, 4}},
      {"num_output: 3 kernel_size: 2 axis: 0", {2, 4, 4}},
  };
  for (const auto& [setting, shape] : cases) {
    CheckGradients(Subject("type: '" + type + "' convolution_param { " + setting + " }",
                           {RandomTensor(shape)}));
  }
  CheckGradients(Subject("type: '" + type +
                             "' top: 'a' top: 'b' convolution_param {"
                             " num_output: 2 kernel_size: 2 }",
                         {RandomTensor({1, 2, 3, 3}), RandomTensor({1, 2, 3, 3})}));
}

void Im2col() {
  for (const std::string setting : {"kernel_size: 2", "kernel_size: 3 stride: 2 pad: 1",
                                    "kernel_h: 1 kernel_w: 3 dilation: 2 pad_h: 0 pad_w: 2"}) {
    CheckGradients(Subject("type: 'Im2col' convolution_param { " + setting + " }",
                           {RandomTensor({2, 2, 5, 6})}));
  }
  CheckGradients(
      Subject("type: 'Im2col' convolution_param { kernel_size: 2 }", {RandomTensor({1, 2, 5})}));
}

void Poolings() {
  for (const std::string pool : {"MAX", "AVE"}) {
    for (const std::string setting :
         {"kernel_size: 2 stride: 2", "kernel_size: 3 stride: 2 pad: 1",
          "kernel_size: 3 stride: 1 pad: 2", "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2",
          "global_pooling: true", "kernel_size: 9 stride: 9"}) {
      CheckGradients(Subject("type: 'Pooling' pooling_param { pool: " + pool + " " + setting + " }",
                             {RandomTensor({2, 3, 5, 6})}));
    }
  }
  CheckGradients(
      Subject("type: 'Pooling' top: 'a' top: 'mask' pooling_param {"
              " kernel_size: 3 stride: 2 pad: 2 }",
              {RandomTensor({2, 2, 5, 6})}));
  for (const std::string setting : {"kernel_size: 2 stride: 2", "kernel_size: 3 stride: 2"}) {
    CheckGradients(Subject("type: 'Pooling' pooling_param { pool: STOCHASTIC " + setting + " }",
                           {Positive({2, 2, 6, 5})}),
                   {.in_float = false});
  }
}

void Lrns() {
  for (const std::string setting :
       {"", "local_size: 3 alpha: 2 beta: 0.5 k: 2", "local_size: 7 alpha: 1",
        "norm_region: WITHIN_CHANNEL local_size: 3 alpha: 2"}) {
    CheckGradients(
        Subject("type: 'LRN' lrn_param { " + setting + " }", {RandomTensor(RandomImages())}));
  }
}

void BatchNorms() {
  for (const Shape& shape :
       {Shape{3, 2, 3, 4}, Shape{5, 3}, Shape{2, 3, 4}, Shape{2, 2, 2, 3, 2}}) {
    CheckGradients(Subject("type: 'BatchNorm'", {RandomTensor(shape)}));
    Subject subject("type: 'BatchNorm' batch_norm_param { use_global_stats: true eps: 0.1 }",
                    {RandomTensor(shape)});
    subject.parameters[1].abs_();
    subject.parameters[2].fill_(2.5);
    CheckGradients(subject);
  }
}

void Mvns() {
  for (const std::string setting : {"", "across_channels: true", "normalize_variance: false",
                                    "normalize_variance: false across_channels: true"}) {
    for (const Shape& shape : {Shape{2, 3, 4, 5}, Shape{3, 2, 4}}) {
      CheckGradients(Subject("type: 'MVN' mvn_param { " + setting + " }", {RandomTensor(shape)}));
    }
  }
}

void InnerProducts() {
  for (const std::string setting :
       {"", "axis: 2", "transpose: true", "axis: -1 bias_term: false"}) {
    CheckGradients(
        Subject("type: 'InnerProduct' inner_product_param { num_output: 3 " + setting + "}",
                {RandomTensor({2, 3, 2, 2})}));
  }
}

void Embeds() {
  for (const std::string setting : {"", "bias_term: false"}) {
    CheckGradients(
        Subject("type: 'Embed' embed_param { num_output: 3 input_dim: 5 " + setting + " }",
                {RandomLabels({4, 2}, 5)}, {false}));
  }
}

// The same fields, in scale_param and bias_param.
void ScalesOrBiases(const std::string& type, const std::string& parameter,
                    const std::vector<std::string>& more) {
  for (const std::string& setting : more) {
    const auto text = [&](const std::string& fields) {
      return "type: '" + type + "' " + parameter + " { " + fields + " " + setting + " }";
    };
    for (const std::string fields :
         {"", "axis: 0 num_axes: 2", "axis: 2 num_axes: -1", "num_axes: 0", "axis: -1"}) {
      CheckGradients(Subject(text(fields), {RandomTensor({2, 3, 4, 2})}));
    }
    for (const Shape& second : {Shape{3}, Shape{3, 4}, Shape{}}) {
      CheckGradients(Subject(text(""), {RandomTensor({2, 3, 4, 2}), RandomTensor(second)}));
      CheckGradients(
          Subject(text(""), {RandomTensor({2, 3, 4, 2}), RandomTensor(second)}, {true, false}));
    }
  }
}

void Powers() {
  for (const std::string setting : {"", "power: 2 scale: 3 shift: 1", "power: 0",
                                    "scale: 0 shift: 2", "scale: -2 shift: 0.5", "power: 3"}) {
    CheckGradients(
        Subject("type: 'Power' power_param { " + setting + " }", {RandomTensor({3, 4})}));
  }
  CheckGradients(Subject("type: 'Power' power_param { power: -0.75 scale: 2 shift: 1 }",
                         {Positive({2, 3, 4})}));
}

void Logs() {
  for (const std::string setting : {"", "base: 2", "base: 10 scale: 3 shift: 1"}) {
    CheckGradients(Subject("type: 'Log' log_param { " + setting + " }", {Positive({2, 3, 4})}));
  }
}

// --- Blobs of any shape. ---

void Eltwises() {
  for (const std::string setting :
       {"", "coeff: 1 coeff: -2 coeff: 0.5", "operation: PROD", "operation: MAX",
        "operation: MAX coeff: 1 coeff: 1 coeff: 1"}) {
    const Tensors bottoms = {RandomTensor({3, 4}), RandomTensor({3, 4}) + 0.01,
                             RandomTensor({3, 4}) + 0.02};
    CheckGradients(Subject("type: 'Eltwise' eltwise_param { " + setting + " }", bottoms));
  }
}

void Reductions() {
  for (const std::string operation : {"SUM", "ASUM", "SUMSQ", "MEAN"}) {
    for (const std::string axis : {"0", "1", "-1"}) {
      CheckGradients(Subject("type: 'Reduction' reduction_param { coeff: 1.5 operation: " +
                                 operation + " axis: " + axis + " }",
                             {RandomTensor({2, 3, 4})}));
    }
  }
}

void Concats() {
  for (const std::string setting : {"", "axis: -1", "concat_dim: 0"}) {
    CheckGradients(Subject("type: 'Concat' concat_param { " + setting + " }",
                           {RandomTensor({2, 3, 3}), RandomTensor({2, 3, 3})}));
  }
  CheckGradients(Subject("type: 'Concat'", {RandomTensor({2, 3})}));
}

void Slices() {
  for (const std::string setting : {"", "axis: -1 slice_point: 1 slice_point: 4", "slice_dim: 0"}) {
    CheckGradients(
        Subject("type: 'Slice' top: 'a' top: 'b' top: 'c' slice_param { " + setting + " }",
                {RandomTensor({3, 3, 6})}));
  }
}

void Crops() {
  for (const std::string setting : {"", "offset: 1", "axis: 1 offset: 0 offset: 1 offset: 2"}) {
    CheckGradients(Subject("type: 'Crop' crop_param { " + setting + " }",
                           {RandomTensor({2, 3, 5, 6}), RandomTensor({2, 2, 3, 4})},
                           {true, false}));
  }
}

void Tiles() {
  for (const std::string axis : {"0", "1", "-1"}) {
    CheckGradients(Subject("type: 'Tile' tile_param { tiles: 3 axis: " + axis + " }",
                           {RandomTensor({2, 3, 2})}));
  }
}

void BatchReindexes() {
  CheckGradients(Subject("type: 'BatchReindex'",
                         {RandomTensor({4, 3}), at::tensor({3.0, 0.0, 3.0, 1.0, 3.0}, at::kDouble)},
                         {true, false}));
}

// --- Losses. ---

const Bools kScoresOnly = {true, false};

void SoftmaxLosses(const std::string& type, const std::string& parameter) {
  for (const std::string setting :
       {"", "loss_param { ignore_label: 2 }", "loss_param { normalization: FULL ignore_label: 0 }",
        "loss_param { normalization: BATCH_SIZE }", "loss_param { normalization: NONE }"}) {
    const std::string text = "type: '" + type + "' " + setting + " " + parameter;
    CheckGradients(Subject(text, {RandomTensor({4, 3, 2, 2}), RandomLabels({4, 1, 2, 2}, 3)},
                           {true, false, false}));
    CheckGradients(Subject("top: 'loss' top: 'probabilities' " + text,
                           {RandomTensor({4, 3}), RandomLabels({4}, 3)}, kScoresOnly),
                   {.tops = 1});
  }
}

void InfogainLosses() {
  const Tensors bottoms = {RandomTensor({4, 3, 2}), RandomLabels({4, 2}, 3),
                           Positive({1, 1, 3, 3})};
  for (const std::string setting :
       {"", "loss_param { ignore_label: 1 }", "loss_param { normalization: BATCH_SIZE }"}) {
    CheckGradients(Subject("type: 'InfogainLoss' " + setting, bottoms, {true, false, false}));
  }
  CheckGradients(Subject("type: 'InfogainLoss' infogain_loss_param { axis: -1 }",
                         {RandomTensor({4, 2, 3}), bottoms[1], bottoms[2]}, {true, false, false}));
}

void HingeLosses() {
  for (const std::string norm : {"L1", "L2"}) {
    CheckGradients(Subject("type: 'HingeLoss' hinge_loss_param { norm: " + norm + " }",
                           {AwayFromOnes({4, 3}), RandomLabels({4}, 3)}, kScoresOnly));
  }
}

void SigmoidCrossEntropyLosses() {
  const at::Tensor targets = RandomLabels({4, 3}, 3);
  for (const std::string setting : {"", "loss_param { ignore_label: 2 normalization: VALID }",
                                    "loss_param { normalization: FULL }"}) {
    CheckGradients(Subject("type: 'SigmoidCrossEntropyLoss' " + setting,
                           {RandomTensor({4, 3}), targets}, kScoresOnly));
  }
}

void ContrastiveLosses() {
  const Tensors bottoms = {RandomTensor({6, 3}), RandomTensor({6, 3}), RandomLabels({6}, 2)};
  for (const std::string setting : {"margin: 4", "margin: 1.5", "margin: 9 legacy_version: true"}) {
    // Not the exact gradient: Caffe adds 1e-4 to the distance that it divides by.
    CheckGradients(Subject("type: 'ContrastiveLoss' contrastive_loss_param { " + setting + " }",
                           bottoms, {true, true, false}),
                   {.tolerance = 2e-4});
  }
}

// With and without a static input; states that come in from outside get no gradient, and what they
// are at the end gives none.
void Recurrences(const std::string& type, size_t states) {
  const std::string fields = "type: '" + type + "' recurrent_param { num_output: 3 ";
  const at::Tensor x = RandomTensor({4, 2, 3});
  const at::Tensor goes_on = RandomLabels({4, 2}, 2);
  const at::Tensor fixed = RandomTensor({2, 2});
  CheckGradients(Subject(fields + "}", {x, goes_on}, {true, false}));
  CheckGradients(Subject(fields + "}", {x, goes_on, fixed}, {true, false, true}));
  CheckGradients(Subject(fields + "}", {x, goes_on, fixed}, {false, false, true}));
  Tensors bottoms = {x, goes_on, fixed};
  std::string tops = "top: 'h'";
  for (size_t i = 0; i < states; ++i) {
    bottoms.push_back(RandomTensor({1, 2, 3}));
    tops += " top: 'state" + std::to_string(i) + "'";
  }
  Bools gradients(bottoms.size(), false);
  gradients[0] = gradients[2] = true;
  CheckGradients(Subject(tops + fields + "expose_hidden: true }", bottoms, gradients), {.tops = 1});
}

void LstmUnits() {
  CheckGradients(
      Subject("type: 'LSTMUnit' top: 'c' top: 'h'",
              {RandomTensor({1, 3, 2}), RandomTensor({1, 3, 8}), RandomLabels({1, 3}, 2)},
              {true, true, false}));
}

void Pyramids() {
  for (const std::string pool : {"MAX", "AVE"}) {
    for (const int height : {1, 2, 3}) {
      CheckGradients(
          Subject("type: 'SPP' spp_param { pool: " + pool + Field("pyramid_height", height) + " }",
                  {RandomTensor({2, 2, 7, 10})}));
    }
  }
  CheckGradients(Subject("type: 'SPP' spp_param { pool: STOCHASTIC pyramid_height: 2 }",
                         {Positive({2, 2, 4, 6})}),
                 {.in_float = false});
}

const std::map<std::string, std::function<void()>>& Cases() {
  static const std::map<std::string, std::function<void()>> cases = {
      {"AbsVal", Each("AbsVal")},
      {"Accuracy",
       [] {
         ExpectNoGradient("type: 'Accuracy'", {RandomTensor({4, 3}), RandomLabels({4}, 3)});
       }},
      {"ArgMax",
       [] {
         ExpectNoGradient("type: 'ArgMax'", {RandomTensor({4, 3})});
       }},
      {"Axpy",
       [] {
         for (const Shape& a : {Shape{2, 3}, Shape{2, 3, 1, 1}}) {
           CheckGradients(Subject("type: 'Axpy'", {RandomTensor(a), RandomTensor({2, 3, 2, 4}),
                                                   RandomTensor({2, 3, 2, 4})}));
         }
       }},
      {"BNLL", Each("BNLL")},
      {"BatchNorm", BatchNorms},
      {"BatchReindex", BatchReindexes},
      {"Bias", [] { ScalesOrBiases("Bias", "bias_param", {""}); }},
      {"Clip", Each("Clip", {"clip_param { min: -1 max: 1 }"})},
      {"Concat", Concats},
      {"ContrastiveLoss", ContrastiveLosses},
      {"Convolution", [] { Convolutions("Convolution"); }},
      {"Crop", Crops},
      {"Deconvolution", [] { Convolutions("Deconvolution"); }},
      {"Dropout",
       [] {
         CheckEach("Dropout", {"", "dropout_param { dropout_ratio: 0.2 }"}, {.in_float = false});
       }},
      {"ELU", Each("ELU", {"", "elu_param { alpha: 0.3 }"})},
      {"Eltwise", Eltwises},
      {"Embed", Embeds},
      {"EuclideanLoss",
       [] {
         CheckGradients(
             Subject("type: 'EuclideanLoss'", {RandomTensor({4, 2, 3}), RandomTensor({4, 6})}));
       }},
      {"Exp", Each("Exp", {"", "exp_param { base: 2 scale: 0.5 shift: 1 }"})},
      {"Filter",
       [] {
         const Tensors bottoms = {RandomTensor({6, 3}), RandomTensor({6, 2, 2}),
                                  RandomLabels({6}, 2)};
         CheckGradients(Subject("type: 'Filter' top: 'x' top: 'y'", bottoms, {true, true, false}));
       }},
      {"Flatten", Each("Flatten", {"", "flatten_param { axis: 0 end_axis: -1 }"})},
      {"HingeLoss", HingeLosses},
      {"Im2col", Im2col},
      {"InfogainLoss", InfogainLosses},
      {"InnerProduct", InnerProducts},
      {"LRN", Lrns},
      {"LSTM", [] { Recurrences("LSTM", 2); }},
      {"LSTMUnit", LstmUnits},
      {"Log", Logs},
      {"MVN", Mvns},
      {"MultinomialLogisticLoss",
       [] {
         CheckGradients(Subject("type: 'MultinomialLogisticLoss'",
                                {Positive({4, 3}), RandomLabels({4}, 3)}, kScoresOnly));
       }},
      {"PReLU", Each("PReLU", {"", "prelu_param { channel_shared: true }"})},
      {"Parameter",
       [] {
         CheckGradients(
             Subject("type: 'Parameter' parameter_param { shape { dim: 2 dim: 3 } }", {}));
       }},
      {"Pooling", Poolings},
      {"Power", Powers},
      {"RNN", [] { Recurrences("RNN", 1); }},
      {"ReLU", Each("ReLU", {"", "relu_param { negative_slope: 0.1 }"})},
      {"Reduction", Reductions},
      {"Reshape", Each("Reshape", {"reshape_param { shape { dim: 0 dim: 1 dim: -1 } }"})},
      {"SPP", Pyramids},
      {"Scale",
       [] {
         ScalesOrBiases("Scale", "scale_param", {"", "bias_term: true"});
       }},
      {"Sigmoid", Each("Sigmoid")},
      {"SigmoidCrossEntropyLoss", SigmoidCrossEntropyLosses},
      {"Silence",
       [] {
         const Subject subject("type: 'Silence'", {RandomTensor({2}), RandomTensor({3})});
         EXPECT_TRUE(subject.Forward().empty());
       }},
      {"Slice", Slices},
      {"Softmax", Each("Softmax", {"", "softmax_param { axis: -1 }", "softmax_param { axis: 0 }"})},
      {"SoftmaxWithLoss", [] { SoftmaxLosses("SoftmaxWithLoss", ""); }},
      {"Split", Each("Split", {"top: 'a'", "top: 'a' top: 'b' top: 'c'"})},
      {"Swish", Each("Swish", {"", "swish_param { beta: 2 }"})},
      {"TanH", Each("TanH")},
      {"Threshold",
       [] {
         ExpectNoGradient("type: 'Threshold'", {RandomTensor({4, 3})});
       }},
      {"Tile", Tiles},
  };
  return cases;
}

class TorchGradientsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(TorchGradientsTest, MatchFiniteDifferences) { Cases().at(GetParam())(); }

std::vector<std::string> CaseNames() {
  std::vector<std::string> names;
  for (const auto& [name, check] : Cases()) names.push_back(name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Layers, TorchGradientsTest, ::testing::ValuesIn(CaseNames()),
                         [](const auto& test) { return test.param; });

TEST(TorchGradientsTableTest, EveryLayerTypeHasACase) {
  for (const LayerType& type : LayerTypes()) {
    // Data layers compute nothing that could be differentiated, and Python layers what the user
    // says (torch_python_layer_test.cc).
    const bool source = type.bottoms.max == 0 && type.name != "Parameter";
    const bool expected = type.refused.empty() && !source && type.name != "Python";
    EXPECT_EQ(Cases().contains(std::string(type.name)), expected) << type.name;
  }
}

}  // namespace
}  // namespace poseidon
