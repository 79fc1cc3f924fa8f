#include "tests/golden/layer_cases.h"

#include <utility>

namespace poseidon {
namespace {

using Cases = std::vector<GoldenCase>;

GoldenBottom Noise(std::vector<int> shape) { return {.shape = std::move(shape)}; }

GoldenBottom Positive(std::vector<int> shape) {
  return {.shape = std::move(shape), .values = Values::kPositive};
}

GoldenBottom Probabilities(std::vector<int> shape) {
  return {.shape = std::move(shape), .values = Values::kProbabilities};
}

GoldenBottom Numbers(std::vector<int> shape, int bound) {
  return {.shape = std::move(shape), .values = Values::kNumbers, .bound = bound, .gradient = false};
}

GoldenBottom WithoutGradient(GoldenBottom bottom) {
  bottom.gradient = false;
  return bottom;
}

const GoldenBottom kImage = Noise({2, 4, 6, 5});
const GoldenBottom kRows = Noise({5, 6});

void AddConvolutions(Cases& cases) {
  const auto add = [&](const char* setting, const std::string& fields,
                       std::vector<GoldenBottom> bottoms = {kImage}) {
    cases.push_back({"Convolution", setting, "convolution_param { num_output: 4 " + fields + "}",
                     std::move(bottoms)});
  };
  add("3 x 3, padded", "kernel_size: 3 pad: 1");
  add("rectangular", "kernel_h: 2 kernel_w: 3 stride_h: 2 stride_w: 1 pad_h: 1 pad_w: 0");
  add("groups", "kernel_size: 3 group: 2 stride: 2");
  add("a group a channel", "kernel_size: 3 group: 4 pad: 1 bias_term: false");
  add("dilated", "kernel_size: 3 dilation: 2 pad: 2");
  add("no bias", "kernel_size: 2 bias_term: false");
  add("1 x 1", "kernel_size: 1");
  add("one axis", "kernel_size: 3 pad: 1 stride: 2", {Noise({2, 3, 8})});
  add("three axes", "kernel_size: 2 kernel_size: 3 kernel_size: 2 pad: 1 stride: 2",
      {Noise({2, 2, 4, 5, 4})});
  add("axis 2", "axis: 2 kernel_size: 2", {Noise({2, 2, 3, 5, 4})});
  cases.push_back({"Convolution",
                   "two images",
                   "convolution_param { num_output: 2 kernel_size: 3 } top: 'a' top: 'b'",
                   {Noise({2, 2, 4, 4}), Noise({2, 2, 4, 4})}});
}

void AddDeconvolutions(Cases& cases) {
  const auto add = [&](const char* setting, const std::string& fields,
                       std::vector<GoldenBottom> bottoms = {Noise({2, 4, 3, 4})}) {
    cases.push_back({"Deconvolution", setting, "convolution_param { num_output: 4 " + fields + "}",
                     std::move(bottoms)});
  };
  add("stride 2", "kernel_size: 3 stride: 2");
  add("padded", "kernel_size: 4 stride: 2 pad: 1");
  add("groups, rectangular", "kernel_h: 2 kernel_w: 3 stride_h: 1 stride_w: 2 group: 2");
  add("a group a channel, no bias", "kernel_size: 4 stride: 2 pad: 1 group: 4 bias_term: false");
  add("dilated", "kernel_size: 2 dilation: 2");
  add("three axes", "kernel_size: 2 stride: 2", {Noise({1, 2, 2, 3, 2})});
}

void AddPoolings(Cases& cases) {
  for (const char* const method : {"MAX", "AVE"}) {
    const auto add = [&](const std::string& setting, const std::string& fields) {
      cases.push_back({"Pooling",
                       method + (", " + setting),
                       "pooling_param { pool: " + std::string(method) + " " + fields + "}",
                       {kImage}});
    };
    add("2 x 2", "kernel_size: 2 stride: 2");
    add("3 x 3, extents rounded up", "kernel_size: 3 stride: 2");
    add("extents rounded down", "kernel_size: 3 stride: 2 round_mode: FLOOR");
    add("padded", "kernel_size: 3 stride: 2 pad: 1");
    add("padded, stride 1", "kernel_size: 3 pad: 1");
    add("rectangular", "kernel_h: 3 kernel_w: 2 stride_h: 1 stride_w: 3 pad_h: 1 pad_w: 1");
    add("global", "global_pooling: true");
  }
  cases.push_back({"Pooling",
                   "MAX, with its mask",
                   "pooling_param { pool: MAX kernel_size: 3 stride: 2 } top: 'a' top: 'mask'",
                   {kImage}});
}

void AddNormalizations(Cases& cases) {
  const GoldenBottom deep = Noise({2, 7, 3, 4});
  cases.push_back({"LRN", "across 5 channels", "lrn_param { alpha: 0.5 beta: 0.75 }", {deep}});
  cases.push_back({"LRN",
                   "across 3 channels, k 2",
                   "lrn_param { local_size: 3 alpha: 2 beta: 0.5 k: 2 }",
                   {deep}});
  cases.push_back({"LRN",
                   "within 3 x 3",
                   "lrn_param { norm_region: WITHIN_CHANNEL local_size: 3 alpha: 3 beta: 0.75 }",
                   {deep}});
  cases.push_back({"MVN", "as it is", "", {kImage}});
  cases.push_back({"MVN", "mean only", "mvn_param { normalize_variance: false }", {kImage}});
  cases.push_back({"MVN", "across channels", "mvn_param { across_channels: true }", {kImage}});
  cases.push_back({"MVN",
                   "mean only, across channels",
                   "mvn_param { across_channels: true normalize_variance: false }",
                   {kImage}});
  cases.push_back({"BatchNorm", "training", "", {kImage}});
  cases.push_back({"BatchNorm",
                   "training, other fractions",
                   "batch_norm_param { moving_average_fraction: 0.5 eps: 0.1 }",
                   {kImage}});
  cases.push_back({"BatchNorm", "rows", "", {kRows}});
  cases.push_back({"BatchNorm", "testing", "", {kImage}, true});
  cases.push_back({"BatchNorm",
                   "training by global statistics",
                   "batch_norm_param { use_global_stats: true }",
                   {kImage}});
}

void AddProducts(Cases& cases) {
  const auto inner = [&](const char* setting, const std::string& fields) {
    cases.push_back({"InnerProduct",
                     setting,
                     "inner_product_param { num_output: 3 " + fields + "}",
                     {Noise({3, 2, 4, 3})}});
  };
  inner("as it is", "");
  inner("no bias", "bias_term: false");
  inner("axis 2", "axis: 2");
  inner("last axis", "axis: -1");
  inner("transposed", "transpose: true");
  cases.push_back(
      {"Embed", "as it is", "embed_param { num_output: 4 input_dim: 6 }", {Numbers({5, 3}, 6)}});
  cases.push_back({"Embed",
                   "no bias",
                   "embed_param { num_output: 4 input_dim: 6 bias_term: false }",
                   {Numbers({7}, 6)}});
  cases.push_back({"Scale", "a channel", "", {kImage}});
  cases.push_back({"Scale", "with bias", "scale_param { bias_term: true }", {kImage}});
  cases.push_back({"Scale", "two axes", "scale_param { axis: 1 num_axes: 2 }", {kImage}});
  cases.push_back({"Scale",
                   "all axes from 2 on, with bias",
                   "scale_param { axis: 2 num_axes: -1 bias_term: true }",
                   {kImage}});
  cases.push_back({"Scale", "one number", "scale_param { axis: 0 num_axes: 0 }", {kImage}});
  cases.push_back({"Scale", "by a bottom", "scale_param { axis: 0 }", {kImage, Noise({2, 4})}});
  cases.push_back({"Scale",
                   "by a bottom, with bias",
                   "scale_param { axis: 1 bias_term: true }",
                   {kImage, Noise({4})}});
  cases.push_back({"Bias", "a channel", "", {kImage}});
  cases.push_back({"Bias", "two axes", "bias_param { axis: 2 num_axes: 2 }", {kImage}});
  cases.push_back({"Bias", "by a bottom", "bias_param { axis: 1 }", {kImage, Noise({4, 6})}});
}

void AddActivations(Cases& cases) {
  const auto add = [&](const char* type, const char* setting, const char* fields,
                       const GoldenBottom& bottom = kImage) {
    cases.push_back({type, setting, fields, {bottom}});
  };
  add("ReLU", "as it is", "");
  add("ReLU", "leaking", "relu_param { negative_slope: 0.1 }");
  add("PReLU", "a channel", "");
  add("PReLU", "shared", "prelu_param { channel_shared: true }");
  add("PReLU", "rows", "", kRows);
  add("ELU", "as it is", "");
  add("ELU", "alpha", "elu_param { alpha: 0.3 }");
  add("Sigmoid", "as it is", "");
  add("TanH", "as it is", "");
  add("AbsVal", "as it is", "");
  add("Power", "square", "power_param { power: 2 scale: 0.5 shift: 0.3 }");
  add("Power", "cube root of positive", "power_param { power: 0.333 scale: 2 shift: 0.1 }",
      Positive({3, 7}));
  add("Power", "reciprocal", "power_param { power: -1 scale: 3 shift: 0.2 }", Positive({3, 7}));
  add("Power", "linear", "power_param { scale: -1.5 shift: 0.25 }");
  add("Power", "constant", "power_param { power: 0 scale: 2 shift: 3 }");
  add("Exp", "as it is", "");
  add("Exp", "base 2", "exp_param { base: 2 scale: 0.5 shift: 1 }");
  add("Log", "as it is", "", Positive({3, 7}));
  add("Log", "base 10", "log_param { base: 10 scale: 2 shift: 0.5 }", Positive({3, 7}));
  add("BNLL", "as it is", "");
  add("Swish", "as it is", "");
  add("Swish", "beta", "swish_param { beta: 1.7 }");
  add("Clip", "as it is", "clip_param { min: -0.7 max: 1.1 }");
  cases.push_back(
      {"Threshold", "as it is", "threshold_param { threshold: 0.4 }", {WithoutGradient(kImage)}});
  cases.push_back({"Dropout", "testing", "dropout_param { dropout_ratio: 0.3 }", {kImage}, true});
}

void AddShapes(Cases& cases) {
  const auto add = [&](const char* type, const char* setting, const char* fields,
                       std::vector<GoldenBottom> bottoms = {kImage}) {
    cases.push_back({type, setting, fields, std::move(bottoms)});
  };
  add("Concat", "channels", "", {kImage, Noise({2, 1, 6, 5}), kImage});
  add("Concat", "images", "concat_param { axis: 0 }", {kImage, Noise({3, 4, 6, 5})});
  add("Concat", "last axis", "concat_param { axis: -1 }", {kRows, Noise({5, 2})});
  add("Concat", "the older field", "concat_param { concat_dim: 1 }", {kRows, Noise({5, 2})});
  add("Slice", "evenly", "top: 'a' top: 'b'");
  add("Slice", "at points",
      "slice_param { slice_point: 1 slice_point: 3 } top: 'a' top: 'b' top: 'c'");
  add("Slice", "axis 2", "slice_param { axis: 2 slice_point: 2 } top: 'a' top: 'b'");
  add("Slice", "the older field", "slice_param { slice_dim: 0 } top: 'a' top: 'b'");
  add("Split", "three ways", "top: 'a' top: 'b' top: 'c'");
  add("Eltwise", "sum", "", {kImage, kImage, kImage});
  add("Eltwise", "weighted sum", "eltwise_param { coeff: 0.5 coeff: -2 }", {kImage, kImage});
  add("Eltwise", "product", "eltwise_param { operation: PROD }", {kImage, kImage, kImage});
  add("Eltwise", "product by division", "eltwise_param { operation: PROD stable_prod_grad: false }",
      {kImage, kImage});
  add("Eltwise", "maximum", "eltwise_param { operation: MAX }", {kImage, kImage, kImage});
  add("Flatten", "as it is", "");
  add("Flatten", "axes 1 and 2", "flatten_param { axis: 1 end_axis: 2 }");
  add("Reshape", "copied and inferred extents",
      "reshape_param { shape { dim: 0 dim: 2 dim: -1 dim: 5 } }");
  add("Reshape", "some axes", "reshape_param { axis: 1 num_axes: 2 shape { dim: 3 dim: -1 } }");
  add("Reshape", "a new axis", "reshape_param { axis: -1 num_axes: 0 shape { dim: 1 } }");
  add("Crop", "images", "crop_param { offset: 2 }", {kImage, WithoutGradient(Noise({2, 4, 3, 2}))});
  add("Crop", "offsets", "crop_param { axis: 1 offset: 1 offset: 0 offset: 2 }",
      {kImage, WithoutGradient(Noise({2, 2, 5, 3}))});
  add("Tile", "channels", "tile_param { tiles: 3 }");
  add("Tile", "last axis", "tile_param { axis: -1 tiles: 2 }");
  add("Reduction", "sum", "");
  add("Reduction", "sum of magnitudes", "reduction_param { operation: ASUM axis: 1 coeff: 0.5 }");
  add("Reduction", "sum of squares", "reduction_param { operation: SUMSQ axis: 2 coeff: -2 }");
  add("Reduction", "mean", "reduction_param { operation: MEAN axis: -1 }");
  cases.push_back({"Silence", "two", "", {kImage, kRows}});
  for (const auto& [setting, fields] :
       {std::pair{"best", ""}, std::pair{"best three", "argmax_param { top_k: 3 }"},
        std::pair{"with values", "argmax_param { out_max_val: true top_k: 2 }"},
        std::pair{"axis 1", "argmax_param { axis: 1 top_k: 2 }"},
        std::pair{"axis -1, values", "argmax_param { axis: -1 top_k: 2 out_max_val: true }"}}) {
    add("ArgMax", setting, fields, {WithoutGradient(Noise({2, 4, 3, 2}))});
  }
  add("BatchReindex", "chosen images", "", {Noise({3, 2, 2}), Numbers({5}, 3)});
  add("Im2col", "padded", "convolution_param { kernel_size: 3 stride: 2 pad: 1 }");
  add("Softmax", "channels", "");
  add("Softmax", "last axis", "softmax_param { axis: -1 }");
}

void AddSoftmaxLosses(Cases& cases) {
  const GoldenBottom maps = Noise({2, 5, 3, 2});
  const GoldenBottom map_labels = Numbers({2, 1, 3, 2}, 5);
  const auto add = [&](const char* setting, const char* fields, const GoldenBottom& scores,
                       const GoldenBottom& labels) {
    cases.push_back({"SoftmaxWithLoss", setting, fields, {scores, labels}});
  };
  add("as it is", "", kRows, Numbers({5}, 6));
  add("weighted", "loss_weight: 0.3", kRows, Numbers({5}, 6));
  add("maps", "", maps, map_labels);
  add("a label ignored", "loss_param { ignore_label: 2 }", maps, map_labels);
  add("FULL", "loss_param { ignore_label: 2 normalization: FULL }", maps, map_labels);
  add("VALID", "loss_param { ignore_label: 2 normalization: VALID }", maps, map_labels);
  add("BATCH_SIZE", "loss_param { ignore_label: 2 normalization: BATCH_SIZE }", maps, map_labels);
  add("NONE", "loss_param { normalization: NONE }", maps, map_labels);
  add("the older field", "loss_param { normalize: false }", maps, map_labels);
  add("last axis", "softmax_param { axis: -1 }", Noise({2, 3, 4}), Numbers({2, 3}, 4));
}

void AddLosses(Cases& cases) {
  const auto add = [&](const char* type, const char* setting, const char* fields,
                       std::vector<GoldenBottom> bottoms) {
    cases.push_back({type, setting, fields, std::move(bottoms)});
  };
  const GoldenBottom labels = Numbers({5}, 6);
  const GoldenBottom bits = Numbers({5, 6}, 2);
  const char* const sigmoid = "SigmoidCrossEntropyLoss";
  add(sigmoid, "as it is", "", {kRows, bits});
  add(sigmoid, "a label ignored", "loss_param { ignore_label: 1 }", {kRows, bits});
  add(sigmoid, "VALID", "loss_param { ignore_label: 1 normalization: VALID }", {kRows, bits});
  add(sigmoid, "FULL", "loss_param { normalization: FULL } loss_weight: 2", {kRows, bits});
  add(sigmoid, "NONE", "loss_param { normalization: NONE }", {kRows, bits});
  add("EuclideanLoss", "both ways", "", {kImage, kImage});
  add("EuclideanLoss", "weighted, one way", "loss_weight: 0.5", {kRows, WithoutGradient(kRows)});
  add("HingeLoss", "L1", "", {kRows, labels});
  add("HingeLoss", "L2", "hinge_loss_param { norm: L2 } loss_weight: 3", {kRows, labels});
  const GoldenBottom gains = WithoutGradient(Positive({1, 1, 6, 6}));
  add("InfogainLoss", "as it is", "", {kRows, labels, gains});
  add("InfogainLoss", "maps, a label ignored", "loss_param { ignore_label: 1 normalization: FULL }",
      {Noise({2, 6, 2, 2}), Numbers({2, 1, 2, 2}, 6), gains});
  add("InfogainLoss", "with probabilities", "top: 'loss' top: 'p' loss_weight: 1 loss_weight: 0",
      {kRows, labels, gains});
  const GoldenBottom same = Numbers({5}, 2);
  add("ContrastiveLoss", "as it is", "contrastive_loss_param { margin: 4 }", {kRows, kRows, same});
  add("ContrastiveLoss", "the older formula",
      "contrastive_loss_param { margin: 20 legacy_version: true }", {kRows, kRows, same});
  add("MultinomialLogisticLoss", "as it is", "", {Probabilities({5, 6}), labels});

  const GoldenBottom scores = WithoutGradient(Noise({9, 6}));
  const GoldenBottom classes = Numbers({9}, 6);
  add("Accuracy", "as it is", "", {scores, classes});
  add("Accuracy", "best three", "accuracy_param { top_k: 3 }", {scores, classes});
  add("Accuracy", "a label ignored", "accuracy_param { ignore_label: 3 }", {scores, classes});
  add("Accuracy", "a class", "top: 'all' top: 'class' accuracy_param { top_k: 2 }",
      {scores, classes});
  add("Accuracy", "maps", "accuracy_param { axis: 1 }",
      {WithoutGradient(Noise({2, 5, 3, 2})), Numbers({2, 1, 3, 2}, 5)});
}

// Where values are equal, functions have kinks, exponentials overflow, or nothing is counted.
void AddEdges(Cases& cases) {
  const GoldenBottom ties{.shape = {2, 4, 6, 5}, .values = Values::kTies};
  const auto add = [&](const char* type, const char* setting, const char* fields,
                       std::vector<GoldenBottom> bottoms) {
    cases.push_back({type, setting, fields, std::move(bottoms)});
  };
  add("Pooling", "MAX, ties", "pooling_param { kernel_size: 3 stride: 2 }", {ties});
  add("Pooling", "MAX, ties, padded, with its mask",
      "pooling_param { kernel_size: 3 pad: 1 } top: 'a' top: 'mask'", {ties});
  add("Eltwise", "maximum, ties", "eltwise_param { operation: MAX }", {ties, ties, ties});
  add("Eltwise", "product, zeros", "eltwise_param { operation: PROD }", {ties, ties, ties});
  add("ArgMax", "ties", "argmax_param { axis: 1 top_k: 2 }", {WithoutGradient(ties)});
  add("Accuracy", "ties", "accuracy_param { top_k: 2 }",
      {WithoutGradient({.shape = {9, 6}, .values = Values::kTies}), Numbers({9}, 6)});
  add("ReLU", "at 0", "", {ties});
  add("ReLU", "leaking, at 0", "relu_param { negative_slope: 0.1 }", {ties});
  add("PReLU", "at 0", "", {ties});
  add("ELU", "at 0", "", {ties});
  add("AbsVal", "at 0", "", {ties});
  add("Clip", "at its ends", "clip_param { min: 0 max: 1 }", {ties});
  add("Threshold", "at its threshold", "", {WithoutGradient(ties)});
  add("Reduction", "sum of magnitudes, at 0", "reduction_param { operation: ASUM axis: 1 }",
      {ties});
  add("HingeLoss", "L1, at the margin", "",
      {GoldenBottom{.shape = {5, 6}, .values = Values::kTies}, Numbers({5}, 6)});
  add("HingeLoss", "L2, at the margin", "hinge_loss_param { norm: L2 }",
      {GoldenBottom{.shape = {5, 6}, .values = Values::kTies}, Numbers({5}, 6)});
  add("ContrastiveLoss", "equal features", "contrastive_loss_param { margin: 2 }",
      {GoldenBottom{.shape = {9, 1}, .values = Values::kTies},
       GoldenBottom{.shape = {9, 1}, .values = Values::kTies}, Numbers({9}, 2)});

  const GoldenBottom far{.shape = {5, 6}, .values = Values::kFar};
  for (const char* const type : {"Sigmoid", "TanH", "BNLL", "Swish", "ELU", "Softmax"}) {
    add(type, "far from 0", "", {far});
  }
  add("SoftmaxWithLoss", "far from 0", "", {far, Numbers({5}, 6)});
  add("SigmoidCrossEntropyLoss", "far from 0", "", {far, Numbers({5, 6}, 2)});
  add("InfogainLoss", "far from 0", "",
      {far, Numbers({5}, 6), WithoutGradient(Positive({1, 1, 6, 6}))});
  add("MultinomialLogisticLoss", "probabilities 0 and 1", "",
      {GoldenBottom{.shape = {5, 3}, .values = Values::kNumbers, .bound = 2}, Numbers({5}, 3)});

  const GoldenBottom nothing = Numbers({5}, 1);
  const char* const ignored = "loss_param { ignore_label: 0 normalization: VALID }";
  add("SoftmaxWithLoss", "all ignored", ignored, {kRows, nothing});
  add("SigmoidCrossEntropyLoss", "all ignored", ignored, {kRows, Numbers({5, 6}, 1)});
  add("InfogainLoss", "all ignored", ignored,
      {kRows, nothing, WithoutGradient(Positive({1, 1, 6, 6}))});
  add("Accuracy", "all ignored", "accuracy_param { ignore_label: 0 } top: 'all' top: 'class'",
      {WithoutGradient(kRows), nothing});

  cases.push_back({"BatchNorm", "testing before any training", "", {kImage}, true, true});
  cases.push_back({"BatchNorm", "the first training", "", {kImage}, false, true});
}

// Five steps of three streams, in the middle of which sequences begin.
void AddRecurrences(Cases& cases) {
  const GoldenBottom x = Noise({5, 3, 4});
  const GoldenBottom goes_on = Numbers({5, 3}, 2);
  const GoldenBottom fixed = Noise({3, 2});
  const GoldenBottom state = WithoutGradient(Noise({1, 3, 2}));
  for (const char* const type : {"LSTM", "RNN"}) {
    const bool lstm = std::string(type) == "LSTM";
    const auto add = [&](const char* setting, const std::string& fields,
                         std::vector<GoldenBottom> bottoms) {
      cases.push_back(
          {type, setting, "recurrent_param { num_output: 2 " + fields, std::move(bottoms)});
    };
    const std::string exposed = lstm ? "expose_hidden: true } top: 'h' top: 'h_T' top: 'c_T'"
                                     : "expose_hidden: true } top: 'h' top: 'h_T'";
    std::vector<GoldenBottom> states(lstm ? 2 : 1, state);
    add("as it is", "}", {x, goes_on});
    add("one step", "}", {Noise({1, 3, 4}), Numbers({1, 3}, 2)});
    add("inputs of two axes", "}", {Noise({5, 3, 2, 2}), goes_on});
    add("static input", "}", {x, goes_on, fixed});
    add("static input of two axes, without gradient", "}",
        {x, goes_on, WithoutGradient(Noise({3, 2, 2}))});
    add("parameters only", "}", {WithoutGradient(x), goes_on});
    states.insert(states.begin(), {x, goes_on});
    add("exposed states", exposed, states);
    states.insert(states.begin() + 2, fixed);
    add("exposed states and static input", exposed, states);
  }
  cases.push_back({"LSTMUnit",
                   "as it is",
                   "top: 'c' top: 'h'",
                   {Noise({1, 4, 3}), Noise({1, 4, 12}), Numbers({1, 4}, 2)}});
}

void AddFilters(Cases& cases) {
  const GoldenBottom selector = Numbers({7}, 2);
  cases.push_back({"Filter", "rows", "", {Noise({7, 3}), selector}});
  cases.push_back({"Filter",
                   "images and labels",
                   "top: 'images' top: 'labels'",
                   {Noise({7, 2, 3, 2}), Numbers({7}, 10), Numbers({7, 1, 1, 1}, 2)}});
}

void AddPyramids(Cases& cases) {
  for (const char* const method : {"MAX", "AVE"}) {
    const auto add = [&](const std::string& setting, int height, const GoldenBottom& bottom) {
      cases.push_back({"SPP",
                       method + (", " + setting),
                       "spp_param { pool: " + std::string(method) +
                           " pyramid_height: " + std::to_string(height) + " }",
                       {bottom}});
    };
    add("one level", 1, kImage);
    add("two levels", 2, kImage);
    add("three levels, padded", 3, Noise({2, 3, 7, 10}));
    add("three levels that fit", 3, Noise({2, 3, 8, 4}));
  }
}

void AddRest(Cases& cases) {
  const auto add = [&](const char* type, const char* setting, const char* fields,
                       std::vector<GoldenBottom> bottoms) {
    cases.push_back({type, setting, fields, std::move(bottoms)});
  };
  add("Parameter", "as it is", "parameter_param { shape { dim: 2 dim: 3 } }", {});
  add("Concat", "one bottom", "", {kRows});
  add("Slice", "one top", "", {kRows});
  add("MVN", "eps", "mvn_param { eps: 0.5 }", {kImage});
  add("EuclideanLoss", "the other way", "", {WithoutGradient(kRows), kRows});
  add("InfogainLoss", "last axis", "infogain_loss_param { axis: -1 }",
      {Noise({2, 3, 4}), Numbers({2, 3}, 4), WithoutGradient(Positive({1, 1, 4, 4}))});
  add("Crop", "no offset", "crop_param { axis: 1 }",
      {kImage, WithoutGradient(Noise({2, 2, 5, 3}))});
  add("LRN", "within 5 x 5", "lrn_param { norm_region: WITHIN_CHANNEL alpha: 0.5 beta: 0.75 }",
      {Noise({2, 3, 4, 3})});
  cases.push_back({"Deconvolution",
                   "two images",
                   "convolution_param { num_output: 2 kernel_size: 2 } top: 'a' top: 'b'",
                   {Noise({2, 2, 3, 3}), Noise({2, 2, 3, 3})}});
  cases.push_back(
      {"Dropout", "testing, ratio 0", "dropout_param { dropout_ratio: 0 }", {kRows}, true});
}

}  // namespace

std::vector<GoldenCase> GoldenCases() {
  Cases cases;
  AddConvolutions(cases);
  AddDeconvolutions(cases);
  AddPoolings(cases);
  AddNormalizations(cases);
  AddProducts(cases);
  AddActivations(cases);
  AddShapes(cases);
  AddSoftmaxLosses(cases);
  AddLosses(cases);
  AddEdges(cases);
  AddRecurrences(cases);
  AddFilters(cases);
  AddPyramids(cases);
  AddRest(cases);
  return cases;
}

std::vector<GoldenCase> RandomGoldenCases() {
  const GoldenBottom bottom = Positive({20, 15});
  return {{"Dropout", "as it is", "", {bottom}},
          {"Dropout", "ratio 0.2", "dropout_param { dropout_ratio: 0.2 }", {bottom}}};
}

}  // namespace poseidon
