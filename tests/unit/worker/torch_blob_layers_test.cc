// Layers on blobs of any shape: forward against a direct implementation in loops on random small
// shapes, and what sets Caffe's apart; and what layers carry on where the workers change. (All
// gradients: torch_gradients_test.cc.)
#include "caffe_adapter/data/data_share.h"
#include "tests/unit/worker/torch_layer_testing.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// --- Blobs of any shape. ---

template <typename Function>
at::Tensor Map(const at::Tensor& x, Function function) {
  at::Tensor result = x.clone();
  for (int64_t i = 0; i < x.numel(); ++i) {
    result.data_ptr<double>()[i] = function(x.data_ptr<double>()[i]);
  }
  return result;
}

// What BVLC's Caffe has for it.
TEST(TorchLayersTest, AxpyIsScaleAndSum) {
  const Tensors bottoms = {RandomTensor({2, 3}), RandomTensor({2, 3, 4, 5}),
                           RandomTensor({2, 3, 4, 5})};
  const Subject scale("type: 'Scale' scale_param { axis: 0 }", {bottoms[1], bottoms[0]});
  CheckForward(Subject("type: 'Axpy'", bottoms), scale.Forward()[0] + bottoms[2]);
}

TEST(TorchLayersTest, Elementwise) {
  const Tensors x = {RandomTensor({2, 3, 4, 5})};
  const Subject relu("type: 'ReLU'", x);
  CheckForward(relu, Map(x[0], [](double v) { return std::max(v, 0.0); }));
  CheckGradients(relu);
  const Subject leaky("type: 'ReLU' relu_param { negative_slope: 0.25 }", x);
  CheckForward(leaky, Map(x[0], [](double v) { return v > 0 ? v : 0.25 * v; }));
  CheckGradients(leaky);
  const Subject sigmoid("type: 'Sigmoid'", x);
  CheckForward(sigmoid, Map(x[0], [](double v) { return 1 / (1 + std::exp(-v)); }));
  CheckGradients(sigmoid);
  const Subject tanh("type: 'TanH'", x);
  CheckForward(tanh, Map(x[0], [](double v) { return std::tanh(v); }));
  CheckGradients(tanh);
}

TEST(TorchLayersTest, OtherNeurons) {
  const at::Tensor x = RandomTensor({2, 3, 4, 5});
  const auto expect = [&](const std::string& text, double (*function)(double)) {
    CheckForward(Subject("type: " + text, {x}), Map(x, function));
  };
  expect("'AbsVal'", [](double v) { return std::fabs(v); });
  expect("'BNLL'", [](double v) { return std::log(1 + std::exp(v)); });
  expect("'Clip' clip_param { min: -0.5 max: 1.5 }",
         [](double v) { return std::max(-0.5, std::min(v, 1.5)); });
  expect("'ELU' elu_param { alpha: 0.5 }",
         [](double v) { return v > 0 ? v : 0.5 * (std::exp(v) - 1); });
  expect("'Exp'", [](double v) { return std::exp(v); });
  expect("'Exp' exp_param { base: 2 scale: 3 shift: 0.5 }",
         [](double v) { return std::pow(2, 3 * v + 0.5); });
  expect("'Log' log_param { base: 2 scale: 0.5 shift: 4 }",
         [](double v) { return std::log2(0.5 * v + 4); });
  expect("'Power' power_param { power: 3 scale: 0.5 shift: -1 }",
         [](double v) { return std::pow(0.5 * v - 1, 3); });
  expect("'Power' power_param { power: 2 scale: 0 shift: 3 }", [](double) { return 9.0; });
  expect("'Power' power_param { power: 0 }", [](double) { return 1.0; });
  expect("'Swish' swish_param { beta: 2 }", [](double v) { return v / (1 + std::exp(-2 * v)); });
  expect("'Threshold' threshold_param { threshold: 0.5 }",
         [](double v) { return v > 0.5 ? 1.0 : 0.0; });
  const Subject prelu("type: 'PReLU'", {x});
  CheckForward(prelu, at::where(x.gt(0), x, x * prelu.parameters[0].view({1, 3, 1, 1})));
}

// Where a function has a kink, its gradient is Caffe's.
TEST(TorchLayersTest, GradientsAtKinks) {
  const at::Tensor zero = at::zeros({1, 1}, at::kDouble);
  const auto gradient = [&](const std::string& text, const at::Tensor& x) {
    const Subject subject("type: " + text, {x});
    return subject.Backward({at::ones_like(x)}, at::kFloat)[0].item<float>();
  };
  EXPECT_EQ(gradient("'ReLU'", zero), 0);
  EXPECT_EQ(gradient("'ReLU' relu_param { negative_slope: 0.5 }", zero), 0.5);
  EXPECT_EQ(gradient("'ELU' elu_param { alpha: 0.5 }", zero), 0.5);
  EXPECT_EQ(gradient("'AbsVal'", zero), 0);
  EXPECT_EQ(gradient("'Clip' clip_param { min: 0 max: 1 }", zero), 1);
  EXPECT_EQ(gradient("'Clip' clip_param { min: -1 max: 0 }", zero), 1);
  const Subject prelu("type: 'PReLU'", {zero});
  EXPECT_EQ(prelu.Backward({zero + 1}, at::kDouble)[0].item<double>(),
            prelu.parameters[0].item<double>());
}

TEST(TorchLayersTest, Dropout) {
  const std::string text = "type: 'Dropout' dropout_param { dropout_ratio: 0.4 }";
  const Subject subject(text, {at::ones({100, 100}, at::kDouble)});
  CheckGradients(Subject(text, {RandomTensor({3, 4})}));
  const auto layer = subject.Make();
  const Tensors parameters;
  const at::Tensor first = layer->Forward({.iteration = 0}, subject.bottoms, parameters)[0];
  const at::Tensor second = layer->Forward({.iteration = 1}, subject.bottoms, parameters)[0];
  const at::Tensor again = layer->Forward({.iteration = 0}, subject.bottoms, parameters)[0];
  EXPECT_TRUE(at::equal(first, again)) << "an iteration's mask must be repeatable";
  // Of two masks that keep 60%, 48% of the places differ.
  EXPECT_NEAR(first.ne(second).to(at::kDouble).mean().item<double>(), 0.48, 0.03);
  const at::Tensor dropped = first.eq(0);
  EXPECT_NEAR(dropped.to(at::kDouble).mean().item<double>(), 0.4, 0.03);
  ExpectClose(first.masked_select(dropped.logical_not()).mean(),
              at::scalar_tensor(1 / 0.6, at::kDouble), 1e-6, "kept values are scaled");

  const Subject test(text, subject.bottoms, {}, caffe::TEST);
  EXPECT_TRUE(at::equal(test.Forward()[0], test.bottoms[0]));
}

TEST(TorchLayersTest, Softmax) {
  const Tensors x = {RandomTensor({3, 4, 2, 2})};
  const Subject subject("type: 'Softmax'", x);
  const at::Tensor powers = Map(x[0], [](double v) { return std::exp(v); });
  CheckForward(subject, powers / powers.sum({1}, true));
  CheckGradients(subject);
}

TEST(TorchLayersTest, ConcatAndFlattenAndSplit) {
  const Tensors two = {RandomTensor({2, 3, 4, 2}), RandomTensor({2, 1, 4, 2})};
  const Subject concat("type: 'Concat'", two);
  ExpectClose(concat.Forward()[0].narrow(1, 0, 3), two[0], 0, "first");
  ExpectClose(concat.Forward()[0].narrow(1, 3, 1), two[1], 0, "second");
  CheckGradients(concat);
  const Subject flatten("type: 'Flatten'", {two[0]});
  CheckForward(flatten, two[0].view({2, 24}));
  CheckGradients(flatten);
  const Subject split("type: 'Split' top: 'a' top: 'b'", {two[0]});
  CheckForward(split, two[0]);
  CheckGradients(split);
}

TEST(TorchLayersTest, Eltwise) {
  const Tensors x = {RandomTensor({2, 3}), RandomTensor({2, 3}), RandomTensor({2, 3})};
  const Subject sum("type: 'Eltwise' eltwise_param { coeff: 1 coeff: -2 coeff: 0.5 }", x);
  CheckForward(sum, x[0] - 2 * x[1] + 0.5 * x[2]);
  CheckGradients(sum);
  const Subject product("type: 'Eltwise' eltwise_param { operation: PROD }", x);
  CheckForward(product, x[0] * x[1] * x[2]);
  CheckGradients(product);
  const Subject max("type: 'Eltwise' eltwise_param { operation: MAX }", x);
  CheckForward(max, at::maximum(at::maximum(x[0], x[1]), x[2]));
  CheckGradients(max);
}

// Of each row the top_k largest; of equal ones Caffe takes the higher index.
TEST(TorchLayersTest, ArgMax) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t classes = Draw(2, 6);
    const int64_t top_k = Draw(1, classes);
    const at::Tensor scores = RandomLabels({3, classes, 2}, 4);  // some equal
    at::Tensor indices = at::empty({3, top_k, 2}, at::kDouble);
    at::Tensor values = at::empty({3, top_k, 2}, at::kDouble);
    const auto in = scores.accessor<double, 3>();
    for (int64_t n = 0; n < 3; ++n)
      for (int64_t i = 0; i < 2; ++i) {
        std::vector<std::pair<double, int64_t>> row;
        for (int64_t c = 0; c < classes; ++c) row.emplace_back(in[n][c][i], c);
        std::sort(row.rbegin(), row.rend());
        for (int64_t k = 0; k < top_k; ++k) {
          values.accessor<double, 3>()[n][k][i] = row[k].first;
          indices.accessor<double, 3>()[n][k][i] = static_cast<double>(row[k].second);
        }
      }
    const std::string fields = Field("top_k", top_k);
    CheckForward(Subject("type: 'ArgMax' argmax_param { axis: 1" + fields + "}", {scores}),
                 indices);
    CheckForward(Subject("type: 'ArgMax' argmax_param { axis: -2 out_max_val: true" + fields + "}",
                         {scores}),
                 values);
    const at::Tensor first = scores.select(2, 0).contiguous();
    CheckForward(Subject("type: 'ArgMax' argmax_param {" + fields + "}", {first}),
                 indices.select(2, 0).reshape({3, 1, top_k}));
    CheckForward(Subject("type: 'ArgMax' argmax_param { out_max_val: true" + fields + "}", {first}),
                 at::stack({indices.select(2, 0), values.select(2, 0)}, 1));
  }
}

TEST(TorchLayersTest, Reduction) {
  const at::Tensor x = RandomTensor({2, 3, 4});
  const auto reduction = [&](const std::string& fields) {
    return Subject("type: 'Reduction' reduction_param { coeff: 2 " + fields + " }", {x});
  };
  CheckForward(reduction(""), x.sum() * 2);
  CheckForward(reduction("axis: 1 operation: MEAN"), x.flatten(1).mean(1) * 2);
  CheckForward(reduction("axis: -1 operation: ASUM"), x.abs().sum(2) * 2);
  CheckForward(reduction("axis: 2 operation: SUMSQ"), (x * x).sum(2) * 2);
}

TEST(TorchLayersTest, LayersThatOnlyMoveValues) {
  const at::Tensor x = RandomTensor({4, 6, 2, 3});
  const Subject slice("type: 'Slice' top: 'a' top: 'b' slice_param { slice_point: 2 }", {x});
  EXPECT_TRUE(at::equal(slice.Forward()[0], x.narrow(1, 0, 2)));
  EXPECT_TRUE(at::equal(slice.Forward()[1], x.narrow(1, 2, 4)));
  CheckForward(Subject("type: 'Reshape' reshape_param { shape { dim: 0 dim: -1 dim: 4 } }", {x}),
               x.reshape({4, 9, 4}));
  CheckForward(Subject("type: 'Tile' tile_param { axis: 2 tiles: 3 }", {x}), at::cat({x, x, x}, 2));
  CheckForward(Subject("type: 'Crop' crop_param { axis: 1 offset: 3 offset: 0 offset: 1 }",
                       {x, RandomTensor({9, 2, 2, 2})}, {true, false}),
               x.narrow(1, 3, 2).narrow(3, 1, 2));
  CheckForward(
      Subject("type: 'BatchReindex'", {x, at::tensor({2.0, 0.0, 2.0}, at::kDouble)}, {true, false}),
      at::stack({x[2], x[0], x[2]}));
}

TEST(TorchLayersTest, EmbedAndParameterAndScaleAndBias) {
  const Subject embed("type: 'Embed' embed_param { num_output: 3 input_dim: 5 }",
                      {at::tensor({4.0, 0.0}, at::kDouble).view({2, 1})}, {false});
  const at::Tensor& rows = embed.parameters[0];
  CheckForward(embed, at::stack({rows[4], rows[0]}).unsqueeze(1) + embed.parameters[1]);
  const Subject parameter("type: 'Parameter' parameter_param { shape { dim: 2 dim: 3 } }", {});
  CheckForward(parameter, parameter.parameters[0]);
  const at::Tensor x = RandomTensor({2, 3, 4});
  const Subject scale("type: 'Scale' scale_param { axis: 0 num_axes: 2 bias_term: true }", {x});
  CheckForward(scale, x * scale.parameters[0].unsqueeze(2) + scale.parameters[1].unsqueeze(2));
  const Subject bias("type: 'Bias' bias_param { axis: -1 }", {x, RandomTensor({4})});
  CheckForward(bias, x + bias.bottoms[1]);
}

TEST(TorchLayersTest, IndicesOutOfRangeAreNamed) {
  const Subject embed("type: 'Embed' embed_param { num_output: 3 input_dim: 5 }",
                      {at::tensor({4.0, 1.0, 0.0, 5.0}, at::kDouble).view({2, 2})}, {false});
  EXPECT_THAT([&] { embed.Forward(); },
              ThrowsMessage<DataError>(HasSubstr("layer \"it\": the index of sample 1 of the batch "
                                                 "is 5; the layer has rows 0 to 4")));
  const Subject reindex("type: 'BatchReindex'",
                        {RandomTensor({2, 2}), at::tensor({-1.0}, at::kDouble)}, {true, false});
  EXPECT_THAT([&] { reindex.Forward(); },
              ThrowsMessage<DataError>(HasSubstr("the index of sample 0 of the batch is -1; the "
                                                 "layer has samples 0 to 1")));
}

TEST(TorchLayersTest, UnknownTypeIsNamed) {
  const Subject subject("type: 'DummyData' dummy_data_param { shape { dim: 2 } }", {});
  EXPECT_THAT([&] { subject.Make(); }, ThrowsMessage<ConfigError>(HasSubstr(
                                           "layer \"it\" (DummyData): this layer type can't "
                                           "be computed; those that can are Data, AbsVal, Acc")));
}

// --- Recurrent layers, where the workers change. ---

TEST(TorchLayersTest, RecurrentLayersBeginAnewWithOtherStreams) {
  for (const std::string type : {"LSTM", "RNN"}) {
    const Subject subject("type: '" + type + "' recurrent_param { num_output: 3 }",
                          {RandomTensor({3, 2, 4}), at::ones({3, 2}, at::kDouble)}, {true, false});
    const auto layer = subject.Make();
    int64_t pass = 0;
    const auto forward = [&] {
      return layer->Forward({.iteration = pass++, .data = nullptr, .later = nullptr},
                            subject.bottoms, subject.parameters)[0];
    };
    const at::Tensor from_zero = forward();
    const auto begins_anew = [&] { return at::equal(forward(), from_zero); };
    EXPECT_FALSE(begins_anew()) << type;
    layer->SetShare({.place = 0, .tenures = {{0, 1}}, .parts = {}});
    EXPECT_FALSE(begins_anew()) << type << ": of the share that it has";
    layer->SetShare({.place = 0, .tenures = {{0, 1}, {3, 2}}, .parts = {}});
    EXPECT_TRUE(begins_anew()) << type << ": with more workers";
    EXPECT_FALSE(begins_anew()) << type;
    layer->SetShare({.place = 1, .tenures = {{0, 1}, {3, 2}}, .parts = {}});
    EXPECT_TRUE(begins_anew()) << type << ": in another place";
  }
}

}  // namespace
}  // namespace poseidon
