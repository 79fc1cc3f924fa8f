// BatchNorm and MVN: forward, statistics and where Caffe's gradient is not quite the function's,
// against a direct implementation. (LRN: torch_layers_test.cc; gradients: torch_gradients_test.cc.)
#include "tests/unit/worker/torch_layer_testing.h"

namespace poseidon {
namespace {

// The values of each channel, as channels x values.
at::Tensor ByChannel(const at::Tensor& x) { return x.transpose(0, 1).flatten(1); }

at::Tensor Variance(const at::Tensor& rows) { return (rows - rows.mean(1, true)).square().mean(1); }

// Three batches: the blobs are sums in which the batches before count `fraction` as much.
TEST(TorchNormalizationLayersTest, BatchNormKeepsSumsOfStatistics) {
  for (const at::ScalarType type : {at::kDouble, at::kFloat}) {
    const Subject subject("type: 'BatchNorm' batch_norm_param { moving_average_fraction: 0.75 }",
                          {RandomTensor({3, 2, 4, 5})});
    const auto layer = subject.Make();
    const Tensors sums = {at::zeros({2}, type), at::zeros({2}, type), at::zeros({1}, type)};
    at::Tensor mean = at::zeros({2}, at::kDouble);
    at::Tensor variance = at::zeros({2}, at::kDouble);
    double factor = 0;
    for (int batch = 0; batch < 3; ++batch) {
      const at::Tensor x = RandomTensor({3, 2, 4, 5}) + batch;
      const at::Tensor rows = ByChannel(x);
      const at::Tensor top = layer->Forward({}, Subject::To({x}, type), sums)[0];
      const auto spread = [](const at::Tensor& values) { return values.view({1, 2, 1, 1}); };
      ExpectClose(top, (x - spread(rows.mean(1))) / (spread(Variance(rows)) + 1e-5).sqrt(), 1e-5,
                  "top");
      mean = 0.75 * mean + rows.mean(1);
      variance = 0.75 * variance + Variance(rows) * 60 / 59;
      factor = 0.75 * factor + 1;
      ExpectClose(sums[0], mean, 1e-6, "mean");
      ExpectClose(sums[1], variance, 1e-6, "variance");
      EXPECT_NEAR(sums[2].item<double>(), factor, 1e-6);
    }
  }
}

// Against doubles of the same numbers, at random means from small to much larger than the
// deviation, in training and by sums.
TEST(TorchNormalizationLayersTest, BatchNormFarFromZero) {
  const std::vector<int64_t> shape = {8, 3, 6, 5};
  for (const double mean : {0.3, -7.0, 100.0, -1000.0, 30000.0}) {
    SCOPED_TRACE(mean);
    const at::Tensor x = (RandomTensor(shape) + mean).to(at::kFloat).to(at::kDouble);
    const at::Tensor given = RandomTensor(shape);
    const Subject training("type: 'BatchNorm'", {x});
    const at::Tensor rows = ByChannel(x);
    const auto spread = [](const at::Tensor& values) { return values.view({1, 3, 1, 1}); };
    const at::Tensor deviation = (Variance(rows) + 1e-5).sqrt();
    const at::Tensor top = (x - spread(rows.mean(1))) / spread(deviation);
    ExpectClose(training.Forward(at::kFloat)[0], top, 1e-5, "by the batch");
    const at::Tensor slope = ByChannel(given);
    const at::Tensor gradient =
        (given - spread(slope.mean(1)) - top * spread((slope * ByChannel(top)).mean(1))) /
        spread(deviation);
    ExpectClose(training.Backward({given}, at::kFloat)[0], gradient, 1e-5, "gradient");

    Subject by_sums("type: 'BatchNorm'", {x}, {}, caffe::TEST);
    by_sums.parameters[0] = rows.mean(1).to(at::kFloat).to(at::kDouble);
    by_sums.parameters[1] = Variance(rows);
    by_sums.parameters[2].fill_(1);
    const at::Tensor expected = (x - spread(by_sums.parameters[0])) / spread(deviation);
    ExpectClose(by_sums.Forward(at::kFloat)[0], expected, 1e-5, "by sums");
  }
}

TEST(TorchNormalizationLayersTest, BatchNormOfOneValueAChannel) {
  const Subject subject("type: 'BatchNorm'", {RandomTensor({1, 4})});
  const Tensors sums = {at::zeros({4}, at::kDouble), at::zeros({4}, at::kDouble),
                        at::zeros({1}, at::kDouble)};
  const at::Tensor top = subject.Make()->Forward({}, subject.bottoms, sums)[0];
  ExpectClose(top, at::zeros({1, 4}, at::kDouble), 1e-12, "top");
  ExpectClose(sums[0], subject.bottoms[0][0], 1e-12, "mean");
  EXPECT_TRUE(sums[1].eq(0).all().item<bool>());
}

// In tests, and where use_global_stats says so.
TEST(TorchNormalizationLayersTest, BatchNormByItsSums) {
  const at::Tensor x = RandomTensor({3, 2, 4, 5});
  const std::string text = "type: 'BatchNorm' batch_norm_param { eps: 0.015625";
  for (Subject subject : {Subject(text + "}", {x}, {}, caffe::TEST),
                          Subject(text + " use_global_stats: true }", {x})}) {
    subject.parameters[1].abs_();
    subject.parameters[2].fill_(4);
    const Tensors before = {subject.parameters[0].clone(), subject.parameters[1].clone()};
    const at::Tensor mean = (before[0] / 4).view({1, 2, 1, 1});
    const at::Tensor variance = (before[1] / 4).view({1, 2, 1, 1});
    CheckForward(subject, (x - mean) / (variance + 0.015625).sqrt());
    EXPECT_TRUE(at::equal(subject.parameters[0], before[0])) << "the sums must stay";
    // Before the first batch, all sums are zero.
    for (const at::Tensor& sum : subject.parameters) sum.zero_();
    CheckForward(subject, x / 0.125);
  }
}

TEST(TorchNormalizationLayersTest, BatchNormByTheBatchInTests) {
  const at::Tensor x = RandomTensor({6, 3});
  const Subject subject("type: 'BatchNorm' batch_norm_param { use_global_stats: false }", {x}, {},
                        caffe::TEST);
  CheckForward(subject, (x - x.mean(0)) / (Variance(x.t()) + 1e-5).sqrt());
}

struct MvnCase {
  std::string setting;
  bool across;
  bool divide;
};

// With a large eps, so that it is seen where it goes in; the gradient is Caffe's formula.
TEST(TorchNormalizationLayersTest, Mvn) {
  for (const MvnCase& mvn : {MvnCase{"", false, true}, MvnCase{"across_channels: true", true, true},
                             MvnCase{"normalize_variance: false", false, false}}) {
    const at::Tensor x = RandomTensor({3, 2, 4, 5});
    const Subject subject("type: 'MVN' mvn_param { eps: 0.5 " + mvn.setting + " }", {x});
    const at::Tensor rows = x.flatten(mvn.across ? 1 : 2).reshape({mvn.across ? 3 : 6, -1});
    const at::Tensor divisor =
        mvn.divide ? Variance(rows).sqrt().unsqueeze(1) + 0.5 : at::ones({1, 1}, at::kDouble);
    const at::Tensor top = (rows - rows.mean(1, true)) / divisor;
    CheckForward(subject, top.view(x.sizes()));

    const at::Tensor given = RandomTensor({3, 2, 4, 5});
    const at::Tensor slope = given.view(rows.sizes());
    at::Tensor expected = slope - slope.mean(1, true);
    if (mvn.divide) expected = (expected - top * (slope * top).mean(1, true)) / divisor;
    ExpectClose(subject.Backward({given}, at::kFloat)[0], expected.view(x.sizes()), 1e-5,
                "gradient");
  }
}

TEST(TorchNormalizationLayersTest, MvnOfEqualValues) {
  const Subject subject("type: 'MVN'", {at::ones({1, 2, 2, 2}, at::kDouble)});
  EXPECT_TRUE(subject.Forward(at::kFloat)[0].eq(0).all().item<bool>());
  const Tensors gradients = subject.Backward({RandomTensor({1, 2, 2, 2})}, at::kFloat);
  EXPECT_TRUE(gradients[0].isfinite().all().item<bool>());
}

}  // namespace
}  // namespace poseidon
