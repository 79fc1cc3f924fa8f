// Losses and Accuracy: forward against a direct implementation in loops on random small shapes, and
// where Caffe's gradient is not quite the loss's. (All gradients: torch_gradients_test.cc.)
#include <functional>
#include <string>
#include <vector>

#include "caffe_adapter/files/caffemodel.h"
#include "proto/text_format.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/worker/torch_layer_testing.h"
#include "worker/torch/score.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct LossCase {
  std::string parameter;
  int ignore_label;  // -1: none
  double (*normalizer)(int outer, int inner, int valid);
};

TEST(TorchLossLayersTest, SoftmaxWithLoss) {
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

// As in Caffe, no gradient comes back through them.
TEST(TorchLossLayersTest, SoftmaxWithLossGivesProbabilities) {
  const Tensors bottoms = {RandomTensor({4, 3}), RandomLabels({4}, 3)};
  const Subject subject("type: 'SoftmaxWithLoss' top: 'loss' top: 'probabilities'", bottoms,
                        {true, false});
  ExpectClose(subject.Forward()[1], at::softmax(bottoms[0], 1), 1e-12, "probabilities");
  const Tensors gradients = subject.Backward({at::Tensor(), RandomTensor({4, 3})}, at::kDouble);
  EXPECT_FALSE(gradients[0].defined());
}

// Caffe takes a probability below the least normal float for that; the gradient stays.
TEST(TorchLossLayersTest, SoftmaxWithLossOfAProbabilityNearZero) {
  const Tensors bottoms = {at::tensor({500.0, 0.0}, at::kDouble).view({1, 2}),
                           at::tensor({1.0}, at::kDouble)};
  const Subject subject("type: 'SoftmaxWithLoss'", bottoms, {true, false});
  EXPECT_NEAR(subject.Forward(at::kFloat)[0].item<float>(), 87.3365, 1e-3);
  ExpectClose(subject.Backward({at::ones({}, at::kDouble)}, at::kFloat)[0],
              at::tensor({1.0, -1.0}, at::kDouble).view({1, 2}), 1e-6, "gradient");
}

// Row by row: H[label] . -log(probabilities), also from a file.
TEST(TorchLossLayersTest, InfogainLoss) {
  const at::Tensor matrix = RandomTensor({3, 3});
  const Tensors bottoms = {RandomTensor({5, 3, 2}), RandomLabels({5, 2}, 3), matrix};
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/infogain.binaryproto";
  caffe::BlobProto blob;
  blob.mutable_shape()->add_dim(3);
  blob.mutable_shape()->add_dim(3);
  for (int i = 0; i < 9; ++i) blob.add_data(matrix.flatten()[i].item<float>());
  WriteBinaryFile(file, blob);
  for (const int ignored : {-1, 0}) {
    double sum = 0;
    int counted = 0;
    for (int64_t n = 0; n < 5; ++n)
      for (int64_t i = 0; i < 2; ++i) {
        const auto label = bottoms[1].accessor<double, 2>()[n][i];
        if (label == ignored) continue;
        const at::Tensor scores = bottoms[0].select(2, i)[n];
        const at::Tensor logarithms = (scores.exp() / scores.exp().sum()).log();
        sum -= (matrix[static_cast<int64_t>(label)] * logarithms).sum().item<double>();
        ++counted;
      }
    const std::string ignore =
        ignored >= 0 ? "loss_param {" + Field("ignore_label", ignored) + "}" : "";
    const at::Tensor expected = at::scalar_tensor(sum / std::max(counted, 1), at::kDouble);
    CheckForward(Subject("type: 'InfogainLoss' " + ignore, bottoms, {true, false, false}),
                 expected);
    const Subject from_file(
        "type: 'InfogainLoss' " + ignore + " infogain_loss_param { source: '" + file + "' }",
        {bottoms[0], bottoms[1]}, {true, false});
    ExpectClose(from_file.Forward()[0], expected, 1e-6, "the matrix of a file is float");
  }
  const Subject other("type: 'InfogainLoss' infogain_loss_param { source: '" + file + "' }",
                      {RandomTensor({2, 4}), RandomLabels({2}, 4)}, {true, false});
  EXPECT_THAT([&] { other.Make(); },
              ThrowsMessage<ConfigError>(HasSubstr("has 9 values; expected 4 x 4")));
}

TEST(TorchLossLayersTest, MultinomialLogisticLoss) {
  at::Tensor probabilities = RandomTensor({4, 3}).abs();
  const at::Tensor labels = RandomLabels({4}, 3);
  double sum = 0;
  for (int64_t n = 0; n < 4; ++n) {
    const auto label = static_cast<int64_t>(labels.accessor<double, 1>()[n]);
    sum -= std::log(probabilities.accessor<double, 2>()[n][label]);
  }
  CheckForward(Subject("type: 'MultinomialLogisticLoss'", {probabilities, labels}, {true, false}),
               at::scalar_tensor(sum / 4, at::kDouble));
  const Subject none("type: 'MultinomialLogisticLoss'",
                     {at::zeros({1, 2}, at::kDouble), at::zeros({1}, at::kDouble)}, {true, false});
  EXPECT_NEAR(none.Forward(at::kFloat)[0].item<float>(), -std::log(1e-20), 1e-4);
  EXPECT_NEAR(none.Backward({at::ones({}, at::kDouble)}, at::kFloat)[0][0][0].item<float>(), -1e20,
              1e14);
}

TEST(TorchLossLayersTest, HingeLoss) {
  const Tensors bottoms = {RandomTensor({5, 4}), RandomLabels({5}, 4)};
  double sum = 0;
  double squares = 0;
  for (int64_t n = 0; n < 5; ++n)
    for (int64_t c = 0; c < 4; ++c) {
      const double score = bottoms[0].accessor<double, 2>()[n][c];
      const bool own = bottoms[1].accessor<double, 1>()[n] == static_cast<double>(c);
      const double missing = std::max(0.0, 1 + (own ? -score : score));
      sum += missing;
      squares += missing * missing;
    }
  CheckForward(Subject("type: 'HingeLoss'", bottoms, {true, false}),
               at::scalar_tensor(sum / 5, at::kDouble));
  CheckForward(Subject("type: 'HingeLoss' hinge_loss_param { norm: L2 }", bottoms, {true, false}),
               at::scalar_tensor(squares / 5, at::kDouble));
}

TEST(TorchLossLayersTest, SigmoidCrossEntropyLoss) {
  const LossCase cases[] = {
      {"", -1, [](int outer, int, int) { return 1.0 * outer; }},
      {"loss_param { normalization: VALID }", -1,
       [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { normalization: VALID ignore_label: 2 }", 2,
       [](int, int, int valid) { return 1.0 * valid; }},
      {"loss_param { ignore_label: 2 normalization: FULL }", 2,
       [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { normalize: true }", -1,
       [](int outer, int inner, int) { return 1.0 * outer * inner; }},
      {"loss_param { normalization: NONE }", -1, [](int, int, int) { return 1.0; }},
  };
  const at::Tensor x = RandomTensor({4, 3, 2});
  const at::Tensor targets = RandomLabels({4, 6}, 3) * 0.5;
  for (const LossCase& loss_case : cases) {
    const at::Tensor given = loss_case.ignore_label < 0 ? targets : (targets * 2).round();
    double sum = 0;
    int valid = 0;
    for (int64_t i = 0; i < 24; ++i) {
      const double score = x.data_ptr<double>()[i];
      const double target = given.data_ptr<double>()[i];
      if (target == loss_case.ignore_label) continue;
      const double probability = 1 / (1 + std::exp(-score));
      sum -= target * std::log(probability) + (1 - target) * std::log(1 - probability);
      ++valid;
    }
    CheckForward(Subject("type: 'SigmoidCrossEntropyLoss' " + loss_case.parameter, {x, given},
                         {true, false}),
                 at::scalar_tensor(sum / loss_case.normalizer(4, 6, valid), at::kDouble));
  }
}

TEST(TorchLossLayersTest, EuclideanAndContrastiveLoss) {
  const Tensors bottoms = {RandomTensor({6, 3}), RandomTensor({6, 3}), RandomLabels({6}, 2)};
  const double margin = 2.5;
  double euclidean = 0;
  double contrastive = 0;
  double legacy = 0;
  for (int64_t n = 0; n < 6; ++n) {
    const double square = (bottoms[0][n] - bottoms[1][n]).square().sum().item<double>();
    const bool pair = bottoms[2].accessor<double, 1>()[n] != 0;
    euclidean += square;
    contrastive += pair ? square : std::pow(std::max(margin - std::sqrt(square), 0.0), 2);
    legacy += pair ? square : std::max(margin - square, 0.0);
  }
  CheckForward(Subject("type: 'EuclideanLoss'", {bottoms[0], bottoms[1]}),
               at::scalar_tensor(euclidean / 12, at::kDouble));
  const std::string text = "type: 'ContrastiveLoss' contrastive_loss_param { margin: 2.5 ";
  CheckForward(Subject(text + "}", bottoms, {true, true, false}),
               at::scalar_tensor(contrastive / 12, at::kDouble));
  CheckForward(Subject(text + "legacy_version: true }", bottoms, {true, true, false}),
               at::scalar_tensor(legacy / 12, at::kDouble));
}

// Two that are alike but no pair: Caffe's gradient there is zero, not undefined.
TEST(TorchLossLayersTest, ContrastiveLossOfEqualSamples) {
  const Subject subject(
      "type: 'ContrastiveLoss'",
      {at::ones({1, 2}, at::kDouble), at::ones({1, 2}, at::kDouble), at::zeros({1}, at::kDouble)},
      {true, true, false});
  EXPECT_EQ(subject.Forward()[0].item<double>(), 0.5);
  const at::Tensor gradient = subject.Backward({at::ones({}, at::kDouble)}, at::kFloat)[0];
  EXPECT_TRUE(gradient.eq(0).all().item<bool>());
}

TEST(TorchLossLayersTest, LabelsThatAreNoClassAreNamed) {
  const at::Tensor labels = at::tensor({0.0, 2.0, 3.0, 1.0}, at::kDouble);
  for (const std::string type :
       {"SoftmaxWithLoss", "Accuracy", "HingeLoss", "MultinomialLogisticLoss"}) {
    const Subject subject("type: '" + type + "'", {RandomTensor({4, 3}), labels}, {true, false});
    EXPECT_THAT([&] { subject.Forward(); },
                ThrowsMessage<DataError>(HasSubstr("layer \"it\": the label of sample 2 of the "
                                                   "batch is 3; the layer has classes 0 to 2")));
  }
}

TEST(TorchLossLayersTest, LabelsHaveNoGradient) {
  const Subject subject("type: 'SoftmaxWithLoss'", {RandomTensor({4, 3}), RandomLabels({4}, 3)});
  EXPECT_THAT([&] { subject.Make(); },
              ThrowsMessage<ConfigError>(HasSubstr("there is no gradient for labels")));
}

TEST(TorchLossLayersTest, Accuracy) {
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

// What `layers` give of 2 x 3 ones, x, and zeros, y, in three batches.
TestResult ScoreOf(const std::string& layers,
                   const std::function<void(int64_t done, int64_t all)>& progress = nullptr) {
  SolverNet net{.net = {}, .phase = caffe::TEST, .state = {}, .locate = {}};
  ParseText(
      "layer { name: 'x' type: 'DummyData' top: 'x' top: 'y' dummy_data_param {"
      " shape { dim: 2 dim: 3 } data_filler { type: 'constant' value: 1 }"
      " data_filler { type: 'constant' value: 0 } } }" +
          layers,
      "net", net.net);
  return ScoreNet(
      net, {}, 3, 1, [](const std::string&) {}, progress);
}

constexpr const char* kEuclidean = "type: 'EuclideanLoss' bottom: 'x' bottom: 'y'";

TEST(ScoreNetTest, TellsOfEachBatch) {
  std::vector<int64_t> told;
  ScoreOf(std::string("layer { name: 'l' top: 'l' ") + kEuclidean + " }",
          [&told](int64_t done, int64_t all) {
            EXPECT_EQ(all, 3);
            told.push_back(done);
          });
  EXPECT_EQ(told, (std::vector<int64_t>{1, 2, 3}));
}

// Else it would be shown twice.
TEST(ScoreNetTest, ALossThatIsAResultIsNoTotal) {
  const auto loss = [](const std::string& name, const std::string& weight) {
    return "layer { name: '" + name + "' top: '" + name + "' " + kEuclidean + weight + " }";
  };
  const TestResult one = ScoreOf(loss("l", ""));
  EXPECT_FALSE(one.loss);
  ASSERT_EQ(one.outputs.size(), 1U);
  EXPECT_EQ(one.outputs[0].values, std::vector<float>{1.5F});
  EXPECT_EQ(ScoreOf(loss("l", " loss_weight: 2")).loss, 3.0F);
  EXPECT_EQ(ScoreOf(loss("l", "") + loss("m", "")).loss, 3.0F);
  EXPECT_EQ(ScoreOf(loss("l", "") + "layer { name: 's' type: 'Silence' bottom: 'l' }").loss, 1.5F);
}

}  // namespace
}  // namespace poseidon
