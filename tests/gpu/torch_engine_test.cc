// The engine on a GPU against the engine on the CPU: one forward and backward pass of whole nets in
// all precisions, and that nothing in it waits for the GPU.
//
// Skipped (exit code 77, with the reason) where libtorch can't use a GPU.
#include "worker/torch/torch_engine.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "proto/model_size.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/worker/torch_engine_testing.h"
#include "tests/unit/worker/torch_layer_testing.h"
#include "worker/cuda_compute_device.h"
#include "worker/torch/layers/torch_device.h"
#include "worker/torch/stream_graph.h"

namespace poseidon {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kGpu = 0;

// An engine on the GPU with memory there for its parameters and gradients.
class GpuTrainee {
 public:
  explicit GpuTrainee(TorchEngineOptions options) {
    options.device = device_->engine_device();
    engine_ = MakeTorchEngine(options);
    for (const LayerSpec& layer : engine_->model().layers()) {
      const auto count = static_cast<int64_t>(FloatCount(layer));
      parameters_.push_back(at::full({count}, 77.0F, ToTorchDevice(kGpu)));
      gradients_.push_back(at::full({count}, 77.0F, ToTorchDevice(kGpu)));
      engine_->BindParameters(static_cast<int>(parameters_.size()) - 1, Span(parameters_.back()));
    }
    engine_->FillParameters();
  }

  Engine& engine() { return *engine_; }

  // Nothing of it waits for the GPU, as far as this thread's operators tell.
  // Given up after so many steps, forward and back.
  void Iterate(int64_t iteration, int most_steps = std::numeric_limits<int>::max()) {
    engine_->LoadBatch(iteration);
    const NoHostReads none;
    int done = 0;
    for (int step = 0; step < engine_->steps() && done++ < most_steps; ++step) {
      engine_->Forward(step);
    }
    for (int step = engine_->steps() - 1; step >= 0 && done++ < most_steps; --step) {
      GradientBuffers target;
      if (const auto layer = engine_->layer_of_step(step)) target.dense = Span(gradients_[*layer]);
      engine_->Backward(step, target);
    }
  }

  // Plain gradient descent on the GPU.
  void Update(double rate) {
    for (size_t layer = 0; layer < parameters_.size(); ++layer) {
      parameters_[layer].sub_(gradients_[layer], rate);
    }
  }

  Floats parameters(size_t layer) const { return CopyToHost(Span(parameters_[layer]), Device()); }
  Floats gradients(size_t layer) const { return CopyToHost(Span(gradients_[layer]), Device()); }
  void SetParameter(size_t layer, size_t index, float value) {
    CopyFromHost({&value, 1}, Span(parameters_[layer]).subspan(index, 1), Device());
  }

 private:
  static at::Device Device() { return ToTorchDevice(kGpu); }
  static std::span<float> Span(const at::Tensor& tensor) {
    return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
  }

  std::unique_ptr<ComputeDevice> device_ = MakeCudaComputeDevice(kGpu);
  std::unique_ptr<Engine> engine_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> gradients_;
};

class TorchGpuTest : public TorchEngineTest {
 protected:
  // Images with all the normalizations, a sum, a mean, wide padding, and a layer without channels.
  TorchEngineOptions Normalizing() {
    return Options(R"(
      layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param {
              num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
      layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm' }
      layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'scale' scale_param {
              bias_term: true } }
      layer { name: 'relu' type: 'ReLU' bottom: 'scale' top: 'scale' }
      layer { name: 'conv2' type: 'Convolution' bottom: 'scale' top: 'conv2' convolution_param {
              num_output: 8 kernel_size: 3 pad: 1 group: 2 weight_filler { type: 'msra' } } }
      layer { name: 'sum' type: 'Eltwise' bottom: 'scale' bottom: 'conv2' top: 'sum' }
      layer { name: 'lrn' type: 'LRN' bottom: 'sum' top: 'lrn' }
      layer { name: 'max' type: 'Pooling' bottom: 'lrn' top: 'max' pooling_param {
              kernel_size: 3 stride: 2 pad: 2 } }
      layer { name: 'mean' type: 'Pooling' bottom: 'sum' top: 'mean' pooling_param {
              pool: AVE kernel_size: 3 stride: 2 pad: 2 } }
      layer { name: 'both' type: 'Concat' bottom: 'max' bottom: 'mean' top: 'both' }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'both' top: 'ip' inner_product_param {
              num_output: 10 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })",
                   16);
  }

  // `rounding` of the precision decides here and there which value is a maximum: see
  // tests/unit/worker/torch_precision_test.cc. In float32 the order of sums does.
  void CheckAgainstCpu(TorchEngineOptions options, Precision precision, double rounding) {
    SCOPED_TRACE("rounding " + std::to_string(rounding));
    options.precision = precision;
    options.loss_scaling.initial_scale = 256;  // no gradient overflows
    Trainee cpu(options);
    GpuTrainee gpu(options);
    const float loss = cpu.Iterate(0);
    gpu.Iterate(0);
    EXPECT_NEAR(gpu.engine().loss(), loss, 10 * rounding * loss);
    for (size_t layer = 0; layer < cpu.parameters.size(); ++layer) {
      const std::string name = cpu.engine().model().layers(static_cast<int>(layer)).name();
      EXPECT_EQ(gpu.parameters(layer), cpu.parameters[layer]) << name;
      EXPECT_LT(RelativeDistance(gpu.gradients(layer), cpu.gradients[layer]),
                3 * std::sqrt(rounding))
          << name;
    }
  }

  void CheckAgainstCpu(const TorchEngineOptions& options) {
    CheckAgainstCpu(options, Precision::kFloat32, 0x1p-24);
    CheckAgainstCpu(options, Precision::kFloat16, 0x1p-12);
    CheckAgainstCpu(options, Precision::kBfloat16, 0x1p-9);
  }
};

TEST_F(TorchGpuTest, LeNetIsThatOfTheCpu) {
  WriteDigits("train", 100, 28, 1);
  CheckAgainstCpu(LeNet());
}

TEST_F(TorchGpuTest, CifarQuickIsThatOfTheCpu) {
  WriteDigits("train", 100, 32, 1, 3);
  CheckAgainstCpu(CifarQuick());
}

TEST_F(TorchGpuTest, NormalizationsAreThoseOfTheCpu) {
  WriteDigits("train", 40, 10, 1);
  CheckAgainstCpu(Normalizing());
}

void ExpectBitIdenticalRuns(TorchEngineOptions options) {
  options.deterministic = true;
  GpuTrainee one(options);
  GpuTrainee two(options);
  for (int64_t iteration = 0; iteration < 3; ++iteration) {
    one.Iterate(iteration);
    two.Iterate(iteration);
    EXPECT_EQ(one.engine().loss(), two.engine().loss());
    for (int layer = 0; layer < one.engine().model().layers_size(); ++layer) {
      EXPECT_EQ(one.gradients(layer), two.gradients(layer)) << layer;
    }
  }
}

TEST_F(TorchGpuTest, TwoRunsAreBitIdentical) {
  WriteDigits("train", 100, 28, 1);
  ExpectBitIdenticalRuns(LeNet());
}

// Gradients of hundreds of places meet in one.
TEST_F(TorchGpuTest, TwoRunsAreBitIdenticalWhereAnIndexComesOften) {
  WriteDigits("train", 100, 28, 1);
  ExpectBitIdenticalRuns(Options(R"(
      layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param {
              num_output: 8 kernel_size: 3 weight_filler { type: 'msra' } } }
      layer { name: 'columns' type: 'Im2col' bottom: 'conv' top: 'columns' convolution_param {
              kernel_size: 5 } }
      layer { name: 'third' type: 'DummyData' top: 'third' dummy_data_param {
              shape { dim: 64 } data_filler { type: 'constant' value: 3 } } }
      layer { name: 'copies' type: 'BatchReindex' bottom: 'columns' bottom: 'third' top: 'copies' }
      layer { name: 'ip' type: 'InnerProduct' bottom: 'copies' top: 'ip' inner_product_param {
              num_output: 10 weight_filler { type: 'xavier' } } }
      layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })",
                                 64));
}

// A net of what is captured and what is not, wherever the two can meet: behind and before data, in
// place, values that both read, two losses, weights that two layers share.
constexpr const char* kCapturedInParts = R"(
  layer { name: 'first' type: 'Dropout' bottom: 'data' top: 'first' dropout_param {
          dropout_ratio: 0.1 } }
  layer { name: 'conv' type: 'Convolution' bottom: 'first' top: 'conv' convolution_param {
          num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm' }
  layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'scale' scale_param {
          bias_term: true } }
  layer { name: 'relu' type: 'ReLU' bottom: 'scale' top: 'scale' }
  layer { name: 'drop' type: 'Dropout' bottom: 'scale' top: 'drop' }
  layer { name: 'conv2' type: 'Convolution' bottom: 'scale' top: 'conv2' convolution_param {
          num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
  layer { name: 'sum' type: 'Eltwise' bottom: 'drop' bottom: 'conv2' top: 'sum' }
  layer { name: 'relu2' type: 'ReLU' bottom: 'sum' top: 'sum' }
  layer { name: 'drop2' type: 'Dropout' bottom: 'sum' top: 'sum' }
  layer { name: 'lrn' type: 'LRN' bottom: 'sum' top: 'lrn' }
  layer { name: 'max' type: 'Pooling' bottom: 'lrn' top: 'max' pooling_param {
          kernel_size: 3 stride: 2 pad: 2 } }
  layer { name: 'ip1' type: 'InnerProduct' bottom: 'max' top: 'ip1' param { name: 'w' }
          param { lr_mult: 2 } inner_product_param { num_output: 10
          weight_filler { type: 'xavier' } } }
  layer { name: 'loss1' type: 'SoftmaxWithLoss' bottom: 'ip1' bottom: 'label' top: 'loss1'
          loss_weight: 0.5 }
  layer { name: 'drop3' type: 'Dropout' bottom: 'max' top: 'drop3' }
  layer { name: 'ip2' type: 'InnerProduct' bottom: 'drop3' top: 'ip2' param { name: 'w' }
          inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'both' type: 'Eltwise' bottom: 'ip1' bottom: 'ip2' top: 'both' }
  layer { name: 'accuracy' type: 'Accuracy' bottom: 'both' bottom: 'label' top: 'accuracy' }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'both' bottom: 'label' top: 'loss' })";

int CountOf(const std::vector<std::string>& lines, const std::string& text) {
  return static_cast<int>(std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find(text) != line.npos;
  }));
}

std::set<int> RandomPauses(int steps, std::mt19937& random) {
  const double share = std::uniform_real_distribution(0.0, 1.0)(random);
  std::set<int> pauses;
  for (int step = 0; step < steps; ++step) {
    if (std::bernoulli_distribution(share)(random)) pauses.insert(step);
  }
  return pauses;
}

// Nine passes, of which the first ones are step by step in any case; later ones are begun anew with
// other pauses. One is given up on its way first, which may or may not have added to the
// statistics.
void ExpectSameTraining(const TorchEngineOptions& options, bool gives_up, uint32_t seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const LogLines log;
  GpuTrainee as_graphs(options);
  GpuTrainee by_steps(options);
  const int steps = as_graphs.engine().steps();
  const auto layers = static_cast<size_t>(as_graphs.engine().model().layers_size());
  for (int64_t iteration = 0; iteration < 9; ++iteration) {
    if (iteration == 0 || iteration == 5) {
      as_graphs.engine().SetPauses(RandomPauses(steps, random));
    }
    if (gives_up && iteration == 4) {
      as_graphs.Iterate(iteration, std::uniform_int_distribution(0, 2 * steps - 1)(random));
    }
    as_graphs.Iterate(iteration);
    by_steps.Iterate(iteration);
    ASSERT_EQ(as_graphs.engine().loss(), by_steps.engine().loss()) << "iteration " << iteration;
    for (size_t layer = 0; layer < layers; ++layer) {
      ASSERT_EQ(as_graphs.gradients(layer), by_steps.gradients(layer))
          << "iteration " << iteration << ", layer " << layer;
    }
    as_graphs.Update(0.05);
    by_steps.Update(0.05);
  }
  EXPECT_EQ(CountOf(log.lines(), "a pass is launched as"), 2);
  EXPECT_EQ(CountOf(log.lines(), "step by step"), 0);
  if (!gives_up) {
    EXPECT_EQ(as_graphs.engine().Values(), by_steps.engine().Values());
  }
  EXPECT_EQ(as_graphs.engine().FirstNotFinite(), "");
}

TEST_F(TorchGpuTest, PassesAsGraphsAreThoseStepByStep) {
  WriteDigits("train", 100, 12, 1);
  TorchEngineOptions options = Options(kCapturedInParts, 16);
  options.deterministic = true;
  for (uint32_t seed = 0; seed < 8; ++seed) ExpectSameTraining(options, seed % 2 == 1, seed);
  for (const Precision half : {Precision::kFloat16, Precision::kBfloat16}) {
    options.precision = half;
    ExpectSameTraining(options, false, 8);
  }
  options.precision = Precision::kFloat16;
  options.loss_scaling = {.initial_scale = 0x1p40F,
                          .growth_interval = 3};  // overflows, and changes
  ExpectSameTraining(options, false, 9);
  options = Normalizing();
  options.deterministic = true;
  ExpectSameTraining(options, false, 10);
}

TEST_F(TorchGpuTest, APassIsLaunchedAsGraphsBetweenPauses) {
  WriteDigits("train", 100, 12, 1);
  GpuTrainee trainee(Options(kCapturedInParts, 16));
  trainee.engine().SetPauses(std::set<int>{});
  const LogLines log;
  for (int64_t iteration = 0; iteration < 4; ++iteration) trainee.Iterate(iteration);
  // Between are data, four Dropout layers, Accuracy and two losses, forward and back. Graphs end
  // there, where two of them do not follow each other.
  EXPECT_THAT(log.lines(), Contains(HasSubstr("as 8 CUDA graphs and 16 steps between them")));
}

TEST_F(TorchGpuTest, ANetThatCannotBeCapturedSaysWhy) {
  WriteDigits("train", 100, 12, 1);
  std::string net = kClassifier;
  net.insert(0, R"(
      layer { name: 'draw' type: 'Pooling' bottom: 'data' top: 'draw' pooling_param {
              pool: STOCHASTIC kernel_size: 2 stride: 2 } } )");
  GpuTrainee trainee(Options(net, 16));
  trainee.engine().SetPauses(std::set<int>{});
  const LogLines log;
  for (int64_t iteration = 0; iteration < 4; ++iteration) trainee.Iterate(iteration);
  EXPECT_THAT(log.lines(), Contains(HasSubstr("layer \"draw\" (Pooling) can't be captured")));
  EXPECT_TRUE(std::isfinite(trainee.engine().loss()));
}

// What the work does that can't be captured leaves nothing behind.
TEST_F(TorchGpuTest, ACaptureThatFailsLeavesAllAsItWas) {
  const at::Device device = ToTorchDevice(kGpu);
  const at::Tensor sum = at::full({4}, 1.0F, device);
  const std::unique_ptr<StreamGraphs> graphs = MakeStreamGraphs(device);
  for (int i = 0; i < 3; ++i) {
    graphs->Begin();
    EXPECT_THROW(graphs->Capture([&] { sum.add(1).sum().item<float>(); }), c10::Error);
    EXPECT_THROW(graphs->Capture([] { throw std::runtime_error("own"); }), std::runtime_error);
    const auto add = graphs->Capture([&] { sum.add_(at::full({4}, 1.0F, device)); });
    // Nor behind a graph, whose memory that of the failed one is.
    EXPECT_THROW(graphs->Capture([&] { sum.add(1).sum().item<float>(); }), c10::Error);
    EXPECT_EQ(sum.sum().item<float>(), static_cast<float>(4 + 8 * i));
    add->Launch();
    add->Launch();
  }
}

TEST_F(TorchGpuTest, APassOfGraphsNamesWhatIsNotFinite) {
  WriteDigits("train", 40, 12, 1);
  TorchEngineOptions options = Options(kCapturedInParts, 40);
  GpuTrainee trainee(options);
  trainee.engine().SetPauses(std::set<int>{3});
  for (int64_t iteration = 0; iteration < 4; ++iteration) trainee.Iterate(iteration);
  EXPECT_TRUE(std::isfinite(trainee.engine().loss()));
  trainee.SetParameter(0, 3, std::nanf(""));
  trainee.Iterate(4);
  EXPECT_FALSE(std::isfinite(trainee.engine().loss()));
  EXPECT_THAT(trainee.engine().FirstNotFinite(), HasSubstr("\"conv\" (Convolution), in its param"));
}

TEST_F(TorchGpuTest, TestsAndMovesValuesAsTheCpu) {
  WriteDigits("train", 100, 28, 1);
  Trainee cpu(LeNet());
  GpuTrainee gpu(LeNet());
  cpu.Iterate(0);
  cpu.Update(0);
  EXPECT_NE(gpu.engine().Values(), cpu.engine().Values());
  gpu.engine().SetValues(cpu.engine().Values());
  EXPECT_EQ(gpu.engine().Values(), cpu.engine().Values());
  const TestResult expected = cpu.engine().Test();
  const TestResult result = gpu.engine().Test();
  EXPECT_NEAR(result.loss.value(), expected.loss.value(), 1e-4);
  EXPECT_NEAR(result.accuracy.value(), expected.accuracy.value(), 1e-3);
}

TEST_F(TorchGpuTest, NamesTheLayerThatIsNotFinite) {
  WriteDigits("train", 100, 28, 1);
  GpuTrainee gpu(LeNet());
  gpu.Iterate(0);
  gpu.engine().Synchronize();
  EXPECT_EQ(gpu.engine().FirstNotFinite(), "");
  gpu.SetParameter(1, 3, std::nanf(""));
  gpu.Iterate(1);
  EXPECT_FALSE(std::isfinite(gpu.engine().loss()));
  EXPECT_THAT(gpu.engine().FirstNotFinite(), HasSubstr("\"conv2\" (Convolution), in its param"));
}

TEST_F(TorchGpuTest, NamesTheRecordOfABadLabelAfterThePass) {
  WriteDigits("train", 40, 10, 3);  // labels 3 2 0 7 9 ...
  std::string few_classes = kClassifier;
  few_classes.replace(few_classes.find("num_output: 10"), 14, "num_output: 9");
  TorchEngineOptions options = Options(few_classes, 40);
  options.shuffle = false;
  GpuTrainee gpu(options);
  gpu.Iterate(0);
  EXPECT_THAT([&] { gpu.engine().loss(); },
              ThrowsMessage<DataError>(HasSubstr("train is 9; the layer has classes 0 to 8")));
  // And in a pass that is launched as graphs.
  options.batch_per_worker = 1;
  int64_t bad = 0;
  Trainee cpu(options);
  const auto is_good = [&] {
    try {
      cpu.Iterate(bad);
      return true;
    } catch (const DataError&) {
      return false;
    }
  };
  while (is_good()) ++bad;
  ASSERT_GE(bad, 3);
  GpuTrainee by_ones(options);
  by_ones.engine().SetPauses(std::set<int>{});
  const LogLines log;
  for (int64_t iteration = 0; iteration <= bad; ++iteration) by_ones.Iterate(iteration);
  EXPECT_EQ(CountOf(log.lines(), "a pass is launched as"), 1);
  EXPECT_THAT([&] { by_ones.engine().loss(); },
              ThrowsMessage<DataError>(HasSubstr("train is 9; the layer has classes 0 to 8")));
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  try {
    poseidon::ToTorchDevice(poseidon::kGpu);
    poseidon::MakeCudaComputeDevice(poseidon::kGpu);  // of a build without CUDA, there is none
  } catch (const poseidon::ConfigError& error) {
    std::printf("skipped: no GPU can be used: %s\n", error.what());
    return 77;
  }
  return RUN_ALL_TESTS();
}
