// A forward and a backward pass of the nets of configs/models, on one random image.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "caffe_adapter/convert/dataset_writer.h"
#include "proto/model_size.h"
#include "tests/unit/temporary_directory.h"
#include "worker/torch/torch_engine.h"

namespace poseidon {
namespace {

struct Model {
  const char* name;
  Shape record;
  int classes;
  // Loss weights of all classifiers together: a fresh one's loss is about log(classes).
  double weight = 1;
  Precision precision = Precision::kFloat32;
};

std::ostream& operator<<(std::ostream& out, const Model& model) {
  return out << model.name << (model.precision == Precision::kFloat32 ? "" : " in float16");
}

std::string WriteDatabase(const TemporaryDirectory& directory, const Shape& shape) {
  const std::string path = directory.Path("lmdb");
  std::mt19937 random(1);
  DatasetWriter writer(path);
  for (int record = 0; record < 2; ++record) {
    caffe::Datum datum;
    datum.set_channels(static_cast<int32_t>(shape[0]));
    datum.set_height(static_cast<int32_t>(shape[1]));
    datum.set_width(static_cast<int32_t>(shape[2]));
    datum.set_label(record);
    std::string& pixels = *datum.mutable_data();
    pixels.resize(Count(shape));
    for (char& pixel : pixels) pixel = static_cast<char>(random());
    writer.Append(datum);
  }
  writer.Finish();
  return path;
}

Solver SolverOf(const Model& model, const std::string& database) {
  Solver solver = LoadSolver(std::string("configs/models/") + model.name + "/solver.prototxt");
  for (caffe::LayerParameter& layer : *solver.train.net.mutable_layer()) {
    if (layer.type() != "Data") continue;
    layer.mutable_data_param()->set_source(database);
    layer.mutable_transform_param()->clear_mean_file();  // made with the real data
  }
  solver.tests.clear();
  return solver;
}

class TorchModelsTest : public ::testing::TestWithParam<Model> {};

TEST_P(TorchModelsTest, ForwardAndBackward) {
  const TemporaryDirectory directory;
  TorchEngineOptions options;
  options.solver = SolverOf(GetParam(), WriteDatabase(directory, GetParam().record));
  options.batch_per_worker = 1;
  options.precision = GetParam().precision;
  const std::unique_ptr<Engine> engine = MakeTorchEngine(options);
  std::vector<std::vector<float>> values;
  for (const LayerSpec& layer : engine->model().layers()) {
    values.emplace_back(FloatCount(layer));
    engine->BindParameters(static_cast<int>(values.size()) - 1, values.back());
  }
  engine->FillParameters();
  engine->LoadBatch(0);
  for (int step = 0; step < engine->steps(); ++step) engine->Forward(step);
  const double chance = GetParam().weight * std::log(GetParam().classes);
  EXPECT_GT(engine->loss(), 0.2 * chance);
  EXPECT_LT(engine->loss(), 5 * chance);
  std::vector<float> gradient;
  for (int step = engine->steps() - 1; step >= 0; --step) {
    const std::optional<int> layer = engine->layer_of_step(step);
    GradientBuffers target;
    if (layer) {
      gradient.assign(values[*layer].size(), std::nanf(""));
      target.dense = gradient;
    }
    engine->Backward(step, target);
    double squares = 0;
    for (size_t i = 0; layer && i < gradient.size(); ++i)
      squares += double{gradient[i]} * gradient[i];
    ASSERT_TRUE(std::isfinite(squares)) << engine->step_name(step);
  }
}

INSTANTIATE_TEST_SUITE_P(Quick, TorchModelsTest,
                         ::testing::Values(Model{"lenet", {1, 28, 28}, 10},
                                           Model{"cifar10_quick", {3, 32, 32}, 10},
                                           Model{"cifar10_full", {3, 32, 32}, 10},
                                           Model{"googlenet", {3, 256, 256}, 1000, 1.6},
                                           Model{"resnet50", {3, 256, 256}, 1000}));

INSTANTIATE_TEST_SUITE_P(QuickHalf, TorchModelsTest,
                         ::testing::Values(Model{
                             "googlenet", {3, 256, 256}, 1000, 1.6, Precision::kFloat16}));

// These take gigabytes, or minutes on a busy machine.
INSTANTIATE_TEST_SUITE_P(
    Slow, TorchModelsTest,
    ::testing::Values(Model{"alexnet", {3, 256, 256}, 1000},
                      Model{"inception_v3", {3, 320, 320}, 1000},
                      Model{"resnet50", {3, 256, 256}, 1000, 1, Precision::kFloat16},
                      Model{"vgg19", {3, 256, 256}, 1000}, Model{"vgg19_22k", {3, 256, 256}, 21841},
                      Model{"resnet101", {3, 256, 256}, 1000},
                      Model{"resnet101_22k", {3, 256, 256}, 21841},
                      Model{"resnet152", {3, 256, 256}, 1000}));

}  // namespace
}  // namespace poseidon
