// For tests of the engine on whole nets: an engine with memory for its parameters and gradients,
// and nets with data for it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "caffe_adapter/convert/dataset_writer.h"
#include "core/arithmetic/update_rule.h"
#include "core/random.h"
#include "proto/update_rule_message.h"
#include "worker/torch/torch_engine.h"

namespace poseidon {

using Floats = std::vector<float>;

// An engine with memory for its parameters and gradients: a cluster of one.
class Trainee {
 public:
  explicit Trainee(const TorchEngineOptions& options) : engine_(MakeTorchEngine(options)) {
    for (const LayerSpec& layer : engine_->model().layers()) {
      size_t count = 0;
      for (const BlobSpec& blob : layer.blobs()) {
        count += Count(Shape(blob.shape().begin(), blob.shape().end()));
      }
      parameters.emplace_back(count);
      gradients.emplace_back(count, 77.0F);  // which Backward must overwrite
      optimizer_state_.emplace_back(count);
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      engine_->BindParameters(static_cast<int>(i), parameters[i]);
    }
    engine_->FillParameters();
  }

  Engine& engine() { return *engine_; }

  float Forward(int64_t iteration) {
    engine_->LoadBatch(iteration);
    for (int step = 0; step < engine_->steps(); ++step) engine_->Forward(step);
    return engine_->loss();
  }

  // Returns the loss.
  float Iterate(int64_t iteration) {
    const float loss = Forward(iteration);
    for (int step = engine_->steps() - 1; step >= 0; --step) {
      const std::optional<int> layer = engine_->layer_of_step(step);
      GradientBuffers target;
      if (layer) target.dense = gradients[*layer];
      engine_->Backward(step, target);
    }
    return loss;
  }

  void Update(int64_t iteration) {
    const UpdateRule rule = ToUpdateRule(engine_->model().update_rule());
    for (size_t i = 0; i < parameters.size(); ++i) {
      poseidon::Update({rule, iteration, {}, 1}, gradients[i], parameters[i], optimizer_state_[i]);
    }
  }

  std::vector<Floats> parameters;  // by layer of the model
  std::vector<Floats> gradients;

 private:
  std::unique_ptr<Engine> engine_;
  std::vector<Floats> optimizer_state_;
};

class TorchEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = ::testing::TempDir() + "torch_engine_test." + std::to_string(getpid()) + "/";
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // Images of 10 classes: noise with a bright block, whose place is the class.
  void WriteDigits(const std::string& name, int64_t records, int64_t extent, uint64_t seed,
                   int channels = 1) {
    DatasetWriter writer(directory_ + name);
    Random random(seed);
    const int64_t block = extent / 5;
    for (int64_t i = 0; i < records; ++i) {
      const auto label = static_cast<int64_t>(random.Below(10));
      caffe::Datum datum;
      datum.set_channels(channels);
      datum.set_height(static_cast<int32_t>(extent));
      datum.set_width(static_cast<int32_t>(extent));
      datum.set_label(static_cast<int32_t>(label));
      for (int64_t row = 0; row < channels * extent; ++row) {
        const int64_t y = row % extent;
        for (int64_t x = 0; x < extent; ++x) {
          const bool bright = x / block == label % 5 && y / block == 1 + 2 * (label / 5);
          datum.mutable_data()->push_back(
              static_cast<char>(random.Below(100) + (bright ? 150 : 0)));
        }
      }
      writer.Append(datum);
    }
    writer.Finish();
  }

  TorchEngineOptions LeNet() {
    TorchEngineOptions options;
    options.solver = LoadSolver("configs/models/lenet/solver.prototxt");
    SetSource(options.solver.train, "train");
    for (SolverNet& test : options.solver.tests) SetSource(test, "train");
    return options;
  }

  TorchEngineOptions CifarQuick() {
    TorchEngineOptions options;
    options.solver = LoadSolver("configs/models/cifar10_quick/solver.prototxt");
    SetSource(options.solver.train, "train");
    for (caffe::LayerParameter& layer : *options.solver.train.net.mutable_layer()) {
      layer.mutable_transform_param()->clear_mean_file();  // made with the real data
    }
    options.solver.tests.clear();
    return options;
  }

  void SetSource(SolverNet& net, const std::string& name) const {
    for (caffe::LayerParameter& layer : *net.net.mutable_layer()) {
      if (layer.type() == "Data") layer.mutable_data_param()->set_source(directory_ + name);
    }
  }

  // A solver of a net that is `layers` after a Data layer for TRAIN that reads `train` and, if
  // `test_iter` is not 0, one for TEST.
  TorchEngineOptions Options(const std::string& layers, int batch, int test_iter = 0,
                             int test_batch = 1) const {
    std::ofstream(directory_ + "net.prototxt")
        << DataLayer("TRAIN", batch) << (test_iter ? DataLayer("TEST", test_batch) : "") << layers;
    std::ofstream(directory_ + "solver.prototxt")
        << "net: '" << directory_ << "net.prototxt' base_lr: 0.01 lr_policy: 'fixed' max_iter: 10 "
        << (test_iter ? "test_interval: 1 test_iter: " + std::to_string(test_iter) : "");
    TorchEngineOptions options;
    options.solver = LoadSolver(directory_ + "solver.prototxt");
    return options;
  }

  std::string DataLayer(const std::string& phase, int batch) const {
    return "layer { name: 'data' type: 'Data' top: 'data' top: 'label' include { phase: " + phase +
           " } transform_param { scale: 0.01 } data_param { source: '" + directory_ +
           "train' backend: LMDB batch_size: " + std::to_string(batch) + " } }\n";
  }

  std::string directory_;
};

inline const char* const kClassifier = R"(
  layer { name: 'ip' type: 'InnerProduct' bottom: 'data' top: 'ip'
          inner_product_param { num_output: 10 weight_filler { type: 'xavier' } } }
  layer { name: 'loss' type: 'SoftmaxWithLoss' bottom: 'ip' bottom: 'label' top: 'loss' }
  layer { name: 'accuracy' type: 'Accuracy' bottom: 'ip' bottom: 'label' top: 'accuracy'
          include { phase: TEST } })";

inline double LargestDifference(const Floats& a, const Floats& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, static_cast<double>(std::abs(a[i] - b[i])));
  }
  return largest;
}

// The distance of two vectors relative to the length of the second.
inline double RelativeDistance(const Floats& a, const Floats& b) {
  double difference = 0;
  double length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    length += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / length);
}

inline double Largest(const Floats& a) { return LargestDifference(a, Floats(a.size())); }

}  // namespace poseidon
