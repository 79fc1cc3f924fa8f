// Layers on blobs of any shape, and losses: forward against a direct implementation in loops,
// gradients, in double precision, against finite differences; on random small shapes.
#include "tests/unit/torch_layer_testing.h"

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

// --- Losses. ---

struct LossCase {
  std::string parameter;
  int ignore_label;  // -1: none
  double (*normalizer)(int outer, int inner, int valid);
};

TEST(TorchLayersTest, SoftmaxWithLoss) {
  const LossCase cases[] = {
      {"", -1, [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { ignore_label: 2 }", 2, [](int, int, int valid) { return 1.0 * valid; }},
      {"loss_param { ignore_label: 2 normalization: FULL }", 2,
       [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { normalization: BATCH_SIZE }", -1,
       [](int outer, int, int) { return 1.0 * outer; }},
      {"loss_param { normalize: false }", -1, [](int outer, int, int) { return 1.0 * outer; }},
      {"loss_param { normalization: NONE }", -1, [](int, int, int) { return 1.0; }},
  };
  for (const LossCase& loss_case : cases) {
    const Shape shape = {4, 3, 2, 2};
    const Tensors bottoms = {RandomTensor(shape), RandomLabels({4, 1, 2, 2}, 3)};
    const Subject subject("type: 'SoftmaxWithLoss' " + loss_case.parameter, bottoms, {true, false});
    const auto scores = bottoms[0].accessor<double, 4>();
    const auto labels = bottoms[1].accessor<double, 4>();
    double sum = 0;
    int valid = 0;
    for (int64_t n = 0; n < 4; ++n)
      for (int64_t y = 0; y < 2; ++y)
        for (int64_t z = 0; z < 2; ++z) {
          const auto label = static_cast<int64_t>(labels[n][0][y][z]);
          if (label == loss_case.ignore_label) continue;
          double all = 0;
          for (int64_t c = 0; c < 3; ++c) all += std::exp(scores[n][c][y][z]);
          sum -= std::log(std::exp(scores[n][label][y][z]) / all);
          ++valid;
        }
    CheckForward(subject, at::scalar_tensor(sum / loss_case.normalizer(4, 4, valid), at::kDouble));
    CheckGradients(subject);
  }
}

TEST(TorchLayersTest, SoftmaxWithLossGivesProbabilities) {
  const Tensors bottoms = {RandomTensor({4, 3}), RandomLabels({4}, 3)};
  const Subject subject("type: 'SoftmaxWithLoss' top: 'loss' top: 'probabilities'", bottoms,
                        {true, false});
  ExpectClose(subject.Forward()[1], at::softmax(bottoms[0], 1), 1e-12, "probabilities");
  CheckGradients(subject);
}

TEST(TorchLayersTest, LabelsThatAreNoClassAreNamed) {
  const at::Tensor labels = at::tensor({0.0, 2.0, 3.0, 1.0}, at::kDouble);
  for (const std::string type : {"SoftmaxWithLoss", "Accuracy"}) {
    const Subject subject("type: '" + type + "'", {RandomTensor({4, 3}), labels}, {true, false});
    EXPECT_THAT([&] { subject.Forward(); },
                ThrowsMessage<DataError>(HasSubstr("layer \"it\": the label of sample 2 of the "
                                                   "batch is 3; the layer has classes 0 to 2")));
  }
}

TEST(TorchLayersTest, LabelsHaveNoGradient) {
  const Subject subject("type: 'SoftmaxWithLoss'", {RandomTensor({4, 3}), RandomLabels({4}, 3)});
  EXPECT_THAT([&] { subject.Make(); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no gradient for labels")));
}

TEST(TorchLayersTest, Accuracy) {
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t samples = Draw(1, 6);
    const int64_t classes = Draw(2, 5);
    const int64_t top_k = Draw(1, classes);
    const int64_t ignored = trial % 2 == 0 ? Draw(0, classes - 1) : -1;
    // Few different scores, so that some are equal.
    const at::Tensor scores = RandomLabels({samples, classes, 2}, 3);
    const at::Tensor labels = RandomLabels({samples, 2}, classes);
    const std::string text = "type: 'Accuracy' top: 'all' top: 'by_class' accuracy_param {" +
                             Field("top_k", top_k) +
                             (ignored >= 0 ? Field("ignore_label", ignored) : "") + "}";
    std::vector<double> correct(classes);
    std::vector<double> counted(classes);
    for (int64_t n = 0; n < samples; ++n)
      for (int64_t i = 0; i < 2; ++i) {
        const auto label = static_cast<int64_t>(labels.accessor<double, 2>()[n][i]);
        if (label == ignored) continue;
        const auto row = scores.accessor<double, 3>()[n];
        int64_t others_not_lower = 0;
        for (int64_t c = 0; c < classes; ++c) {
          others_not_lower += c != label && row[c][i] >= row[label][i];
        }
        counted[label] += 1;
        correct[label] += others_not_lower < top_k;
      }
    at::Tensor by_class = at::zeros({classes}, at::kDouble);
    double all_correct = 0;
    double all_counted = 0;
    for (int64_t c = 0; c < classes; ++c) {
      by_class.data_ptr<double>()[c] = correct[c] / std::max(1.0, counted[c]);
      all_correct += correct[c];
      all_counted += counted[c];
    }
    const Subject subject(text, {scores, labels});
    CheckForward(subject, at::scalar_tensor(all_correct / std::max(1.0, all_counted), at::kDouble));
    ExpectClose(subject.Forward()[1], by_class, 1e-12, "by class");
  }
}

TEST(TorchLayersTest, UnknownTypeIsNamed) {
  const Subject subject("type: 'BatchNorm'", {RandomTensor({2, 3})});
  EXPECT_THAT([&] { subject.Make(); }, ThrowsMessage<ConfigError>(HasSubstr(
                                           "layer \"it\" (BatchNorm): this layer type can't "
                                           "be computed; those that can are Data, Acc")));
}

}  // namespace
}  // namespace poseidon
