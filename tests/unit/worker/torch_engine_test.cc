// The engine on whole nets: LeNet as configs/models has it, and small nets for single properties.
#include "worker/torch/torch_engine.h"

#include <ATen/Parallel.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <regex>
#include <string>
#include <thread>

#include "core/error.h"
#include "device/launch_thread.h"
#include "tests/unit/worker/torch_engine_testing.h"
#include "worker/engine/compute_device.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// As a worker finds out before it joins a job. No machine has so many GPUs.
TEST(CheckTorchDevice, SaysWhatToDoInstead) {
  EXPECT_NO_THROW(CheckTorchDevice(std::nullopt));
  EXPECT_THAT([] { CheckTorchDevice(1000); },
              ThrowsMessage<ConfigError>(
                  AllOf(HasSubstr("CUDA device 1000, but "),
                        AnyOf(HasSubstr("train on the CPU"), HasSubstr("use one of them")))));
}

// By thread of this process: which signals it gets.
std::map<std::string, bool> WhoGetsSigint() {
  std::map<std::string, bool> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(entry.path() / "status");
    std::string line;
    while (std::getline(status, line) && line.rfind("SigBlk:", 0) != 0) continue;
    if (!status) continue;  // it has ended since it was listed
    const uint64_t blocked = std::stoull(line.substr(7), nullptr, 16);
    threads[entry.path().filename()] = (blocked >> (SIGINT - 1) & 1) == 0;
  }
  return threads;
}

// Only the main thread has a stack for handlers (TorchProductTest.SurvivesSignals).
TEST_F(TorchEngineTest, ThreadsThatComputeBesideTheMainThreadGetNoSignals) {
  const int before = at::get_num_threads();
  WriteDigits("train", 64, 28, 1);
  TorchEngineOptions options = LeNet();
  options.threads = 3;
  const auto expect_none =
      [&options](const std::function<void(const std::function<void()>&)>& run) {
        std::map<std::string, bool> known = WhoGetsSigint();
        std::map<std::string, bool> all;
        run([&] {
          const auto engine = MakeTorchEngine(options);
          at::mm(at::ones({300, 300}), at::ones({300, 300}));
          all = WhoGetsSigint();
          known[std::to_string(gettid())] = true;  // the one that has made the engine
        });
        int beside = 0;
        for (const auto& [thread, gets_it] : all) {
          if (known.contains(thread)) continue;
          ++beside;
          EXPECT_FALSE(gets_it) << thread;
        }
        EXPECT_GE(beside, 2);
      };
  // OpenMP has threads for each thread that asks for some.
  expect_none([](const std::function<void()>& work) { std::thread(work).join(); });
  expect_none([](const std::function<void()>& work) {
    LaunchThread launches;
    launches.Run([&] {
      work();
      EXPECT_FALSE(WhoGetsSigint().at(std::to_string(gettid())));
    });
    launches.Await();
  });
  expect_none([](const std::function<void()>& work) {
    HostComputeDevice device({});
    device.RunAndWait([&] {
      work();
      EXPECT_FALSE(WhoGetsSigint().at(std::to_string(gettid())));
    });
  });
  at::set_num_threads(before);
}

TEST_F(TorchEngineTest, FourWorkersTogetherHaveTheGradientOfOne) {
  WriteDigits("train", 300, 28, 1);  // 4.7 batches of 64: one goes over the end of the epoch
  TorchEngineOptions options = LeNet();
  options.batch_per_worker = 64;
  Trainee whole(options);
  EXPECT_EQ(whole.engine().batch(), 64);
  std::vector<std::unique_ptr<Trainee>> parts;
  for (int rank = 0; rank < 4; ++rank) {
    options.batch_per_worker = 16;
    options.rank = rank;
    options.workers = 4;
    parts.push_back(std::make_unique<Trainee>(options));
    EXPECT_EQ(parts.back()->parameters, whole.parameters) << "initial parameters differ by rank";
  }
  for (const int64_t iteration : {0, 3, 4, 5}) {
    const float loss = whole.Iterate(iteration);
    float mean_loss = 0;
    std::vector<Floats> mean;
    for (const Floats& gradient : whole.gradients) mean.emplace_back(gradient.size());
    for (const auto& part : parts) {
      mean_loss += part->Iterate(iteration) / 4;
      for (size_t layer = 0; layer < mean.size(); ++layer) {
        for (size_t i = 0; i < mean[layer].size(); ++i) {
          mean[layer][i] += part->gradients[layer][i] / 4;
        }
      }
    }
    EXPECT_NEAR(mean_loss, loss, 1e-5);
    for (size_t layer = 0; layer < mean.size(); ++layer) {
      EXPECT_LT(LargestDifference(mean[layer], whole.gradients[layer]),
                1e-5 * Largest(whole.gradients[layer]))
          << whole.engine().model().layers(static_cast<int>(layer)).name();
    }
  }
}

// A Silence layer that reads a blob keeps its memory from being overwritten, and a BatchNorm layer
// from being computed with the Scale layer on it.
TEST_F(TorchEngineTest, WhatIsComputedTogetherIsWhatIsComputedApart) {
  WriteDigits("train", 40, 10, 1);
  const auto silence = [](const std::string& blob) {
    return "layer { name: 'silence_" + blob + "' type: 'Silence' bottom: '" + blob + "' }\n";
  };
  for (const std::string setting : {"", "use_global_stats: true"}) {
    const auto net = [&](bool together) {
      std::string text = R"(
        layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param {
                num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
        layer { name: 'norm' type: 'BatchNorm' bottom: 'conv' top: 'norm'
                batch_norm_param { eps: 0.1 )" +
                         setting + R"( } }
        layer { name: 'scale' type: 'Scale' bottom: 'norm' top: 'scale' scale_param {
                bias_term: true filler { type: 'uniform' min: 0.5 max: 2 }
                bias_filler { type: 'uniform' min: -1 max: 1 } } }
        layer { name: 'relu' type: 'ReLU' bottom: 'scale' top: 'relu' }
        layer { name: 'conv2' type: 'Convolution' bottom: 'relu' top: 'conv2' convolution_param {
                num_output: 8 kernel_size: 3 pad: 1 weight_filler { type: 'msra' } } }
        layer { name: 'sum' type: 'Eltwise' bottom: 'relu' bottom: 'conv2' top: 'sum' }
        layer { name: 'relu2' type: 'ReLU' bottom: 'sum' top: 'relu2' }
        layer { name: 'ip' type: 'InnerProduct' bottom: 'relu2' top: 'ip' inner_product_param {
                num_output: 10 weight_filler { type: 'xavier' } } }
        layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
      for (const std::string blob : {"conv", "norm", "scale", "sum"}) {
        if (!together) text += silence(blob);
      }
      return text;
    };
    Trainee together(Options(net(true), 16));
    Trainee apart(Options(net(false), 16));
    ASSERT_EQ(together.parameters, apart.parameters);
    for (int64_t iteration = 0; iteration < 3; ++iteration) {
      EXPECT_NEAR(together.Iterate(iteration), apart.Iterate(iteration), 1e-5);
      EXPECT_EQ(together.engine().Statistics().size(), 1U);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_NEAR(together.engine().Statistics()[0][i], apart.engine().Statistics()[0][i], 1e-5);
      }
      for (size_t layer = 0; layer < together.gradients.size(); ++layer) {
        EXPECT_LT(RelativeDistance(together.gradients[layer], apart.gradients[layer]), 1e-5)
            << together.engine().model().layers(static_cast<int>(layer)).name();
      }
    }
  }
}

// Parts that differ, and change on the way as a balanced batch's do.
TEST_F(TorchEngineTest, UnequalPartsTogetherHaveTheGradientOfTheWholeBatch) {
  WriteDigits("train", 300, 28, 1);
  TorchEngineOptions options = LeNet();
  options.batch_per_worker = 48;
  Trainee whole(options);
  std::vector<std::unique_ptr<Trainee>> workers;
  for (int rank = 0; rank < 3; ++rank) {
    options.batch_per_worker = 16;
    options.rank = rank;
    options.workers = 3;
    workers.push_back(std::make_unique<Trainee>(options));
  }
  const std::vector<std::vector<int64_t>> divisions = {{20, 5, 23}, {16, 16, 16}, {1, 46, 1}};
  for (int64_t iteration = 4; iteration < 7; ++iteration) {
    const std::vector<int64_t>& parts = divisions[static_cast<size_t>(iteration - 4)];
    const float loss = whole.Iterate(iteration);
    float mean_loss = 0;
    std::vector<Floats> mean;
    for (const Floats& gradient : whole.gradients) mean.emplace_back(gradient.size());
    for (int64_t place = 0; place < 3; ++place) {
      Trainee& worker = *workers[static_cast<size_t>(place)];
      worker.engine().SetShare({.place = place, .tenures = {{0, 3}}, .parts = parts});
      EXPECT_EQ(worker.engine().batch(), parts[static_cast<size_t>(place)]);
      EXPECT_EQ(worker.engine().model().batch(), 16) << "what was declared has changed";
      mean_loss += worker.Iterate(iteration) / 3;
      for (size_t layer = 0; layer < mean.size(); ++layer) {
        for (size_t i = 0; i < mean[layer].size(); ++i) {
          mean[layer][i] += worker.gradients[layer][i] / 3;
        }
      }
    }
    // Sums of 48 samples in another order.
    EXPECT_NEAR(mean_loss, loss, 48 * std::abs(loss) * std::numeric_limits<float>::epsilon());
    for (size_t layer = 0; layer < mean.size(); ++layer) {
      EXPECT_LT(LargestDifference(mean[layer], whole.gradients[layer]),
                1e-5 * Largest(whole.gradients[layer]))
          << whole.engine().model().layers(static_cast<int>(layer)).name();
    }
  }
}

TEST_F(TorchEngineTest, LeNetLearns) {
  WriteDigits("train", 320, 28, 1);
  TorchEngineOptions options = LeNet();
  Trainee trainee(options);
  const float first = trainee.Iterate(0);
  EXPECT_NEAR(first, std::log(10.0), 0.7);
  for (int64_t iteration = 0; iteration < 120; ++iteration) {
    trainee.Iterate(iteration);
    trainee.Update(iteration);
  }
  const TestResult result = trainee.engine().Test();
  EXPECT_GT(result.accuracy.value(), 0.97F);
  EXPECT_LT(result.loss.value(), 0.2F);
}

TEST_F(TorchEngineTest, TwoRunsAreBitIdentical) {
  WriteDigits("train", 100, 28, 1);
  TorchEngineOptions options = LeNet();
  options.threads = 2;
  Trainee one(options);
  Trainee two(options);
  for (int64_t iteration = 0; iteration < 2; ++iteration) {
    EXPECT_EQ(one.Iterate(iteration), two.Iterate(iteration));
    EXPECT_EQ(one.gradients, two.gradients);
    one.Update(iteration);
    two.Update(iteration);
  }
  options.seed = 2;
  EXPECT_NE(Trainee(options).parameters, Trainee(LeNet()).parameters);
}

TEST_F(TorchEngineTest, FactorsMultiplyToTheDenseGradient) {
  WriteDigits("train", 100, 28, 1);
  Trainee trainee(LeNet());
  Engine& engine = trainee.engine();
  trainee.Iterate(0);
  trainee.Forward(0);
  for (int step = engine.steps() - 1; step >= 0; --step) {
    const std::optional<int> layer = engine.layer_of_step(step);
    Floats other;  // the layers below must get the same gradient as from the dense backward pass
    if (layer && !engine.model().layers(*layer).has_inner_product()) {
      other.resize(trainee.gradients[*layer].size());
      engine.Backward(step, {.dense = other, .u = {}, .v = {}});
      EXPECT_EQ(other, trainee.gradients[*layer]) << engine.step_name(step);
      continue;
    }
    if (!layer) {
      engine.Backward(step, {});
      continue;
    }
    const InnerProductSpec& spec = engine.model().layers(*layer).inner_product();
    Floats u(spec.rows() * spec.outputs(), 77);
    Floats v(spec.rows() * spec.inputs(), 77);
    engine.Backward(step, {.dense = {}, .u = u, .v = v});
    Floats product(trainee.gradients[*layer].size());
    for (int64_t row = 0; row < spec.rows(); ++row) {
      for (int64_t m = 0; m < spec.outputs(); ++m) {
        const float gradient = u[row * spec.outputs() + m];
        for (int64_t n = 0; n < spec.inputs(); ++n) {
          product[m * spec.inputs() + n] += gradient * v[row * spec.inputs() + n];
        }
        product[spec.outputs() * spec.inputs() + m] += gradient;
      }
    }
    EXPECT_LT(LargestDifference(product, trainee.gradients[*layer]), 1e-6 * (1 + Largest(product)))
        << engine.step_name(step);
  }
}

// Two readers of one blob, a layer in place between them, two losses with weights, a branch that
// leads nowhere, a bias that does not learn: the gradients against finite differences of loss().
TEST_F(TorchEngineTest, GradientsOfANetWithBranches) {
  WriteDigits("train", 40, 10, 1);
  TorchEngineOptions options = Options(R"(
    layer { name: 'conv' type: 'Convolution' bottom: 'data' top: 'conv' convolution_param {
            num_output: 2 kernel_size: 5 stride: 5 weight_filler { type: 'xavier' } } }
    layer { name: 'before' type: 'InnerProduct' bottom: 'conv' top: 'before' param {} param {
            lr_mult: 0 } inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
    layer { name: 'tanh' type: 'TanH' bottom: 'conv' top: 'conv' }
    layer { name: 'drop' type: 'Dropout' bottom: 'conv' top: 'drop' }
    layer { name: 'after' type: 'InnerProduct' bottom: 'drop' top: 'after'
            inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
    layer { name: 'nowhere' type: 'InnerProduct' bottom: 'conv' top: 'nowhere'
            inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
    layer { name: 'fixed' type: 'InnerProduct' bottom: 'conv' top: 'fixed' param { lr_mult: 0 }
            param { lr_mult: 0 }
            inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
    layer { name: 'sum' type: 'Eltwise' bottom: 'before' bottom: 'after' bottom: 'fixed' top: 'sum' }
    layer { name: 'loss1' type: 'SoftmaxWithLoss' bottom: 'sum' bottom: 'label' top: 'loss1'
            loss_weight: 2 }
    layer { name: 'loss2' type: 'SoftmaxWithLoss' bottom: 'after' bottom: 'label' top: 'loss2'
            loss_weight: 0.5 })",
                                       8);
  Trainee trainee(options);
  ASSERT_EQ(trainee.engine().model().layers_size(), 4) << "layer \"fixed\" does not learn";
  EXPECT_GT(trainee.Iterate(3), 0);
  const std::vector<Floats> gradients = trainee.gradients;
  for (size_t layer = 0; layer < gradients.size(); ++layer) {
    const LayerSpec& spec = trainee.engine().model().layers(static_cast<int>(layer));
    for (size_t i = 0; i < gradients[layer].size(); ++i) {
      float& value = trainee.parameters[layer][i];
      const float before = value;
      constexpr float kStep = 1e-2F;
      value = before + kStep;
      const float above = trainee.Forward(3);
      value = before - kStep;
      const float below = trainee.Forward(3);
      value = before;
      const bool fixed_bias = spec.name() == "before" && i >= gradients[layer].size() - 10;
      const float expected = fixed_bias ? 0 : (above - below) / (2 * kStep);
      EXPECT_NEAR(gradients[layer][i], expected, 2e-3) << spec.name() << " " << i;
    }
  }
  EXPECT_EQ(gradients[3], Floats(gradients[3].size())) << "layer \"nowhere\"";
}

// As who takes a lost worker's place gets them; statistics are other ones at each worker.
TEST_F(TorchEngineTest, UntrainedValuesAreThoseOfLayersThatStay) {
  WriteDigits("train", 40, 10, 1);
  const std::string net = R"(
    layer { name: 'norm' type: 'BatchNorm' bottom: 'data' top: 'norm' }
    layer { name: 'fixed' type: 'InnerProduct' bottom: 'norm' top: 'fixed' param { lr_mult: 0 }
            param { lr_mult: 0 }
            inner_product_param { num_output: 3 weight_filler { type: 'xavier' } } }
    layer { name: 'ip' type: 'InnerProduct' bottom: 'fixed' top: 'ip'
            inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
    layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' })";
  TorchEngineOptions options = Options(net, 8);
  options.seed = 1;
  Trainee first(options);
  options.seed = 2;
  Trainee other(options);
  std::vector<size_t> sizes;
  for (const auto& layer : first.engine().UntrainedValues()) {
    for (const Floats& blob : layer) sizes.push_back(blob.size());
  }
  EXPECT_THAT(sizes, ::testing::ElementsAre(0, 0, 0, 300, 3, 0, 0));
  EXPECT_NE(other.engine().UntrainedValues(), first.engine().UntrainedValues());
  const std::vector<Floats> trained = other.parameters;
  other.engine().SetValues(first.engine().UntrainedValues());
  EXPECT_EQ(other.engine().UntrainedValues(), first.engine().UntrainedValues());
  EXPECT_EQ(other.parameters, trained) << "what others have no values for stays";
}

TEST_F(TorchEngineTest, TestAveragesOverBatchesFromTheFirstRecordOn) {
  WriteDigits("train", 30, 10, 1);
  Trainee pieces(Options(kClassifier, 5, 6, 5));
  Trainee whole(Options(kClassifier, 5, 1, 30));
  const TestResult expected = whole.engine().Test();
  for (int repeat = 0; repeat < 2; ++repeat) {
    const TestResult result = pieces.engine().Test();
    EXPECT_NEAR(result.accuracy.value(), expected.accuracy.value(), 1e-6);
    EXPECT_NEAR(result.loss.value(), expected.loss.value(), 1e-5);
    pieces.Iterate(repeat);  // moves the training data on, not the test's
  }
  pieces.Update(0);
  EXPECT_NE(pieces.engine().Test().loss.value(), expected.loss.value())
      << "the test must see the parameters that train";
  const TestResult none = Trainee(Options(kClassifier, 5)).engine().Test();
  EXPECT_FALSE(none.accuracy.has_value());
  EXPECT_FALSE(none.loss.has_value());
}

// Caffe's CopyTrainedLayersFrom does it on every test net, too.
TEST_F(TorchEngineTest, LayersOfTheTestNetAloneAreReadFromWeights) {
  WriteDigits("train", 30, 10, 1);
  const std::string probe =
      "layer { name: 'probe' type: 'InnerProduct' bottom: 'data' top: 'probe' include { phase: "
      "TEST } inner_product_param { num_output: 1 bias_filler { type: 'constant' value: 2 } } }";
  Trainee trainee(Options(kClassifier + probe, 5, 1));
  const auto probed = [&] {
    for (const TestOutput& output : trainee.engine().Test().outputs) {
      if (output.blob == "probe") return output.values.front();
    }
    return 0.0F;
  };
  EXPECT_EQ(probed(), 2);

  const TorchEngineOptions written = Options(kClassifier + probe, 5, 1);
  const NetDescription net = DescribeNet(written.solver.tests.front());
  NetValues values;
  for (const LayerDescription& layer : net.layers) {
    std::vector<Floats>& blobs = values.emplace_back();
    for (const ParameterDescription& blob : layer.parameters) {
      blobs.emplace_back(Count(blob.shape));
    }
    if (layer.name() == "probe") blobs.back() = {7};
  }
  const std::string model = directory_ + "model.caffemodel";
  WriteCaffemodel(model, net, values);
  const Floats trained = trainee.parameters.front();
  trainee.engine().ReadTestLayers(model);
  EXPECT_EQ(probed(), 7);
  EXPECT_EQ(trainee.parameters.front(), trained) << "those that train are read for all workers";

  WriteCaffemodel(model, *trainee.engine().net(), trainee.engine().Values());
  trainee.engine().ReadTestLayers(model);
  EXPECT_EQ(probed(), 7) << "a snapshot has no such layer";
}

TEST_F(TorchEngineTest, RefusesWhatItCannotCompute) {
  WriteDigits("train", 10, 10, 1);
  const std::string input =
      "layer { name: 'noise' type: 'Input' top: 'noise' "
      "input_param { shape { dim: 5 } } }";
  EXPECT_THAT([&] { MakeTorchEngine(Options(input + kClassifier, 5)); },
              ThrowsMessage<ConfigError>(AllOf(HasSubstr(
                  "net.prototxt:2:1: layer \"noise\" (Input): reads nothing by itself"))));
  const std::string more_classes =
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
      "num_output: 11 } include { phase: TEST } }"
      "layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip' inner_product_param { "
      "num_output: 10 } include { phase: TRAIN } }"
      "layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }";
  EXPECT_THAT([&] { MakeTorchEngine(Options(more_classes, 5, 1)); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("layer \"ip\" has parameters of other shapes, or shared in another "
                            "way, in TEST than in TRAIN")));
  const std::string hinge = std::regex_replace(kClassifier, std::regex("SoftmaxWith"), "Hinge");
  TorchEngineOptions smoothed = Options(hinge, 5);
  smoothed.label_smoothing = 0.1F;
  EXPECT_THAT([&] { MakeTorchEngine(smoothed); },
              ThrowsMessage<ConfigError>(AllOf(
                  HasSubstr("net.prototxt: no layer of the net in TRAIN is a SoftmaxWithLoss"),
                  HasSubstr("large_batch.label_smoothing has no effect; leave it out"))));
}

// Of what() of such an exception all but the first line is a stack trace.
TEST_F(TorchEngineTest, WhatLibtorchThrowsIsToldInASentence) {
  WriteDigits("train", 10, 10, 1);
  const std::string fed =
      "layer { name: 'fed' type: 'Input' top: 'fed' input_param { shape { dim: 5 } } }";
  TorchEngineOptions options = Options(fed + kClassifier, 5);
  bool out_of_memory = true;
  options.feed = [&](const LayerDescription&, int64_t, std::span<const std::span<float>>) {
    if (out_of_memory) {
      TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB");
    }
    TORCH_CHECK(
        false,
        "CUDA error: unspecified launch failure\nCUDA kernel errors might be asynchronously "
        "reported at some other API call,so the stacktrace below might be incorrect.");
  };
  Trainee trainee(options);
  EXPECT_THAT([&] { trainee.Forward(0); },
              ThrowsMessage<Error>("the host has no memory left: CUDA out of memory. Tried to "
                                   "allocate 2.00 GiB; use a smaller batch"));
  out_of_memory = false;
  EXPECT_THAT([&] { trainee.Forward(0); },
              ThrowsMessage<Error>("the host: CUDA error: unspecified launch failure"));
}

TEST_F(TorchEngineTest, NamesTheRecordOfABadLabel) {
  WriteDigits("train", 40, 10, 1);
  std::string few_classes = kClassifier;
  few_classes.replace(few_classes.find("num_output: 10"), 14, "num_output: 9");
  TorchEngineOptions options = Options(few_classes, 40);
  options.shuffle = false;
  Trainee trainee(options);
  EXPECT_THAT([&] { trainee.Forward(0); },
              ThrowsMessage<DataError>(AllOf(
                  HasSubstr("layer \"loss\": the label of record "),
                  HasSubstr(" of " + directory_ + "train is 9; the layer has classes 0 to 8"))));
}

}  // namespace
}  // namespace poseidon
