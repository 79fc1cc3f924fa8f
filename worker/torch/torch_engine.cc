#include "worker/torch/torch_engine.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <cblas.h>
#include <glog/logging.h>
#include <malloc.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "caffe_adapter/net/filler.h"
#include "core/process/blocked_signals.h"
#include "worker/engine/training_inputs.h"
#include "worker/recipe.h"
#include "worker/torch/layers/torch_device.h"
#include "worker/torch/stream_graph.h"
#include "worker/torch/torch_error.h"
#include "worker/torch/torch_net.h"
#include "worker/torch/torch_tester.h"

namespace poseidon {
namespace {

// `batch`: instead of the net's. The losses' weights are multiplied by `share`, and are a replica's
// part of the mean over all replicas' samples (worker/worker_net.h).
NetDescription DescribeTrainNet(const TorchEngineOptions& options, std::optional<int64_t> batch,
                                float share) {
  DescribeOptions describe;
  describe.state = options.solver.train.state;
  describe.locate = options.solver.train.locate;
  describe.batch_size = batch;
  NetDescription net = DescribeNet(options.solver.train.net, caffe::TRAIN, describe);
  CheckSmoothing(options.label_smoothing, net, options.solver.train);
  for (LayerDescription& layer : net.layers) {
    layer.label_smoothing = options.label_smoothing;
    for (float& weight : layer.loss_weights) {
      weight = weight / static_cast<float>(options.replicas) * share;
    }
  }
  return net;
}

BatchReaderOptions TrainReading(const TorchEngineOptions& options) {
  return {.rank = options.rank,
          .workers = options.workers,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .feed = options.feed};
}

at::Device DeviceOf(const TorchEngineOptions& options) {
  return ToTorchDevice(options.device != nullptr ? options.device->cuda_device() : std::nullopt);
}

TorchArithmetic ToArithmetic(const TorchEngineOptions& options, StreamGraphs* graphs) {
  TorchArithmetic arithmetic;
  arithmetic.graphs = graphs;
  arithmetic.passes = options.passes;
  arithmetic.device = DeviceOf(options);
  arithmetic.engine_device = options.device;
  arithmetic.precision = options.precision;
  if (options.precision == Precision::kFloat16) arithmetic.loss_scaling = options.loss_scaling;
  return arithmetic;
}

// The layers of both nets that have the same name must agree on their parameters, and on which of
// them another layer owns.
void CheckSameParameters(const LayerDescription& train, const LayerDescription& test) {
  bool same = train.parameters.size() == test.parameters.size();
  for (size_t i = 0; same && i < train.parameters.size(); ++i) {
    same = train.parameters[i].shape == test.parameters[i].shape &&
           train.parameters[i].owner.has_value() == test.parameters[i].owner.has_value();
  }
  if (!same) {
    throw ConfigError(test.where,
                      "layer \"" + test.name() +
                          "\" has parameters of other shapes, or shared in another way, in "
                          "TEST than in TRAIN (" +
                          train.where.ToString() + ")");
  }
}

// Whether a layer learns is for the train net to say: what only a test net has nobody learns.
NetDescription DescribeTestNet(const SolverNet& net, const NetDescription& train) {
  NetDescription test = DescribeNet(net);
  for (LayerDescription& layer : test.layers) {
    const std::optional<int> step = FindLayer(train, layer.name());
    if (step) CheckSameParameters(train.layers[*step], layer);
    for (size_t i = 0; i < layer.parameters.size(); ++i) {
      layer.parameters[i].lr_mult = step ? train.layers[*step].parameters[i].lr_mult : 0;
    }
  }
  return test;
}

class TorchEngine : public Engine {
 public:
  explicit TorchEngine(const TorchEngineOptions& options);

  const ModelSpec& model() const override { return model_; }
  int64_t batch() const override { return batch_; }
  wire::TrainingInputs inputs() const override;

  int steps() const override { return static_cast<int>(train_->description().layers.size()); }
  const std::string& step_name(int step) const override {
    return train_->description().layers[step].name();
  }
  std::optional<int> layer_of_step(int step) const override { return layer_of_step_[step]; }

  void BindParameters(int layer, std::span<float> values) override;
  void FillParameters() override;

  const NetDescription* net() const override { return &train_->description(); }
  NetValues Values() const override;
  NetValues UntrainedValues() const override;
  void SetValues(const NetValues& values) override;
  std::vector<std::span<float>> Statistics() const override;
  void ReadTestLayers(const std::string& caffemodel) override;

  void SetShare(const DataShare& share) override;
  void SetPauses(const std::optional<std::set<int>>& steps) override;
  void ReleaseMemory() override {
    Do([&] {
      if (!device_.is_cpu()) EmptyCache();
    });
  }
  void LoadBatch(int64_t iteration) override {
    Do([&] { train_->LoadBatch(iteration, iteration + 1); });
  }
  void Forward(int step) override {
    Do([&] { train_->Forward(step); });
  }
  void Backward(int step, const GradientBuffers& target) override {
    Do([&] { train_->Backward(step, target); });
  }
  float loss() const override {
    return Do([&] { return train_->loss(); });
  }
  std::string FirstNotFinite() const override;
  void Synchronize() override {
    Do([&] { poseidon::Synchronize(device_); });
  }

  TestResult Test() override {
    return Do([&] { return TestInMemory(); });
  }

 private:
  // What the device computes for, or copies; whatever fails of it is told as Error.
  template <typename Call>
  std::invoke_result_t<const Call&> Do(const Call& call) const {
    return AsErrors(device_, graphs_ != nullptr, call);
  }
  bool KeepsStatistics(int step) const;
  // Whether passes may change the parameters that it owns, which the model lacks.
  bool ChangesInPasses(int step) const;
  std::vector<std::vector<float>> ValuesOf(int step) const;
  // Makes the train net anew for a part of the batch of all workers.
  void TakePart(const DataShare& share);
  void MakeTestNets(const TorchEngineOptions& options);
  // Gives memory of the engine's own to the layers whose parameters the model lacks.
  void BindOwnParameters();
  // Memory for what the layer owns, with the values of its fillers.
  std::span<float> OwnParameters(const LayerDescription& layer);
  // By the layer's fillers.
  void Fill(const LayerDescription& layer, std::span<float> values) const;
  // In all nets.
  void Bind(const std::string& layer, std::span<float> values);

  // If need be, in the memory of the graphs.
  TestResult TestInMemory();
  TestResult TestAll();

  uint64_t seed_;
  at::Device device_;
  std::unique_ptr<StreamGraphs> graphs_;  // null: none
  // Always there. FirstNotFinite may have to compute what it looks at, and loss() to wait for it.
  mutable std::optional<TorchNet> train_;
  std::optional<std::set<int>> pauses_;
  int64_t batch_;  // of the train net
  TorchEngineOptions options_;
  std::vector<std::unique_ptr<TorchTester>> tests_;
  ModelSpec model_;
  std::vector<std::optional<int>> layer_of_step_;
  std::vector<int> step_of_layer_;
  // By step of the train net: the values of the parameters that it owns, one after the other.
  std::vector<std::span<float>> values_;
  // By test net and step: the values of layers that the train net lacks; else empty.
  std::vector<std::vector<std::span<float>>> test_values_;
  std::vector<at::Tensor> own_parameters_;  // memory of some of both
};

TorchEngine::TorchEngine(const TorchEngineOptions& options)
    : seed_(options.seed),
      device_(DeviceOf(options)),
      graphs_(options.cuda_graphs ? MakeStreamGraphs(device_) : nullptr),
      train_(std::in_place, DescribeTrainNet(options, options.batch_per_worker, 1),
             TrainReading(options), ToArithmetic(options, graphs_.get())),
      batch_(train_->description().batch),
      options_(options),
      model_(ToModelSpec(train_->description(), options.solver.parameter)) {
  for (const LayerDescription& layer : train_->description().layers) {
    const int next = static_cast<int>(step_of_layer_.size());
    layer_of_step_.emplace_back(std::nullopt);
    if (next == model_.layers_size() || model_.layers(next).name() != layer.name()) continue;
    layer_of_step_.back() = next;
    step_of_layer_.push_back(static_cast<int>(layer_of_step_.size()) - 1);
  }
  CHECK_EQ(static_cast<int>(step_of_layer_.size()), model_.layers_size());
  values_.resize(layer_of_step_.size());
  MakeTestNets(options);
  BindOwnParameters();
}

wire::TrainingInputs TorchEngine::inputs() const {
  wire::TrainingInputs inputs;
  for (wire::TrainingData& data : train_->data()) *inputs.add_data() = std::move(data);
  inputs.set_seed(seed_);
  return inputs;
}

void TorchEngine::MakeTestNets(const TorchEngineOptions& options) {
  // One worker tests for all of them; only its machine needs the data.
  if (options.rank != 0 && !options.may_test) return;
  for (size_t i = 0; i < options.solver.tests.size(); ++i) {
    tests_.push_back(std::make_unique<TorchTester>(
        DescribeTestNet(options.solver.tests[i], train_->description()),
        BatchReaderOptions{
            .rank = 0, .workers = 1, .shuffle = false, .seed = seed_, .feed = options.feed},
        options.solver.parameter.test_iter(static_cast<int>(i)), device_, options.device));
  }
}

void TorchEngine::BindOwnParameters() {
  const std::vector<LayerDescription>& layers = train_->description().layers;
  for (size_t step = 0; step < layers.size(); ++step) {
    if (layer_of_step_[step] || layers[step].owned_floats() == 0) continue;
    Bind(layers[step].name(), OwnParameters(layers[step]));
  }
  // As in Caffe, test nets share such layers with no other net, whatever their names.
  for (const auto& test : tests_) {
    std::vector<std::span<float>>& values = test_values_.emplace_back();
    for (const LayerDescription& layer : test->description().layers) {
      const auto step = static_cast<int>(values.size());
      const bool only_here =
          layer.owned_floats() > 0 && !FindLayer(train_->description(), layer.name());
      values.push_back(only_here ? OwnParameters(layer) : std::span<float>());
      if (only_here) test->BindParameters(step, values.back());
    }
  }
}

std::span<float> TorchEngine::OwnParameters(const LayerDescription& layer) {
  const at::Tensor& memory = own_parameters_.emplace_back(
      at::empty({static_cast<int64_t>(layer.owned_floats())}, device_));
  const std::span<float> values(memory.data_ptr<float>(), layer.owned_floats());
  Fill(layer, values);
  return values;
}

void TorchEngine::Fill(const LayerDescription& layer, std::span<float> values) const {
  std::vector<float> on_host(values.size());
  FillLayer(layer, seed_, on_host);
  CopyFromHost(on_host, values, device_);
}

void TorchEngine::Bind(const std::string& layer, std::span<float> values) {
  if (const auto step = FindLayer(train_->description(), layer)) {
    train_->BindParameters(*step, values);
    values_[*step] = values;
  }
  for (const auto& test : tests_) {
    if (const auto step = FindLayer(test->description(), layer))
      test->BindParameters(*step, values);
  }
}

void TorchEngine::BindParameters(int layer, std::span<float> values) {
  Bind(model_.layers(layer).name(), values);
}

void TorchEngine::FillParameters() {
  Do([&] {
    for (const int step : step_of_layer_) {
      Fill(train_->description().layers[step], values_[step]);
    }
  });
}

void TorchEngine::SetShare(const DataShare& share) {
  Do([&] {
    if (!share.parts.empty()) TakePart(share);
    train_->SetShare(share);
  });
}

void TorchEngine::SetPauses(const std::optional<std::set<int>>& steps) {
  pauses_ = steps;
  Do([&] { train_->SetPauses(pauses_); });
}

void TorchEngine::TakePart(const DataShare& share) {
  const int64_t part = share.parts.at(share.place);
  if (part == batch_) return;
  const std::vector<wire::TrainingData> data = train_->data();
  train_.reset();  // its files can't be open twice
  train_.emplace(DescribeTrainNet(options_, part,
                                  static_cast<float>(ShareOfSamples(share.parts, share.place))),
                 TrainReading(options_), ToArithmetic(options_, graphs_.get()));
  CheckSameData(data, train_->data());
  batch_ = part;
  for (int step = 0; step < steps(); ++step) {
    if (!values_[step].empty()) train_->BindParameters(step, values_[step]);
  }
  train_->SetPauses(pauses_);
}

std::vector<std::vector<float>> TorchEngine::ValuesOf(int step) const {
  const std::vector<float> on_host = Do([&] { return CopyToHost(values_[step], device_); });
  std::span<const float> rest = on_host;
  std::vector<std::vector<float>> blobs;
  for (const ParameterDescription& parameter : train_->description().layers[step].parameters) {
    blobs.emplace_back();
    if (parameter.owner) continue;
    const std::span<const float> blob = rest.first(Count(parameter.shape));
    blobs.back().assign(blob.begin(), blob.end());
    rest = rest.subspan(blob.size());
  }
  return blobs;
}

NetValues TorchEngine::Values() const {
  NetValues values;
  for (int step = 0; step < steps(); ++step) values.push_back(ValuesOf(step));
  return values;
}

NetValues TorchEngine::UntrainedValues() const {
  NetValues values;
  for (int step = 0; step < steps(); ++step) {
    const bool stays = !layer_of_step_[step] && !KeepsStatistics(step);
    values.push_back(stays ? ValuesOf(step) : std::vector<std::vector<float>>());
    values.back().resize(train_->description().layers[step].parameters.size());
  }
  return values;
}

void TorchEngine::SetValues(const NetValues& values) {
  for (int step = 0; step < steps(); ++step) {
    std::span<float> rest = values_[step];
    const LayerDescription& layer = train_->description().layers[step];
    for (size_t b = 0; b < layer.parameters.size(); ++b) {
      if (layer.parameters[b].owner) continue;
      const std::vector<float>& blob = values.at(step).at(b);
      const auto floats = static_cast<size_t>(Count(layer.parameters[b].shape));
      if (!blob.empty()) {
        CHECK_EQ(blob.size(), floats);
        Do([&] { CopyFromHost(blob, rest.first(floats), device_); });
      }
      rest = rest.subspan(floats);
    }
  }
}

bool TorchEngine::KeepsStatistics(int step) const {
  return train_->description().layers[step].type() == "BatchNorm";
}

bool TorchEngine::ChangesInPasses(int step) const {
  const bool own_python =
      !layer_of_step_[step] && train_->description().layers[step].type() == "Python";
  return own_python || KeepsStatistics(step);
}

std::vector<std::span<float>> TorchEngine::Statistics() const {
  std::vector<std::span<float>> statistics;
  for (int step = 0; step < steps(); ++step) {
    if (ChangesInPasses(step) && !values_[step].empty()) statistics.push_back(values_[step]);
  }
  return statistics;
}

void TorchEngine::ReadTestLayers(const std::string& caffemodel) {
  for (size_t net = 0; net < tests_.size(); ++net) {
    const NetDescription& test = tests_[net]->description();
    const std::vector<LayerDescription>& layers = test.layers;
    const std::vector<std::span<float>>& values = test_values_[net];
    if (std::ranges::all_of(values, [](std::span<float> own) { return own.empty(); })) continue;
    NetValues read;  // blobs that the file lacks stay empty
    for (const LayerDescription& layer : layers) read.emplace_back(layer.parameters.size());
    ReadCaffemodel(caffemodel, test, read);
    for (size_t step = 0; step < layers.size(); ++step) {
      std::span<float> rest = values[step];
      if (rest.empty()) continue;
      for (size_t b = 0; b < layers[step].parameters.size(); ++b) {
        if (layers[step].parameters[b].owner) continue;
        const auto floats = static_cast<size_t>(Count(layers[step].parameters[b].shape));
        if (!read[step][b].empty()) {
          Do([&] { CopyFromHost(read[step][b], rest.first(floats), device_); });
        }
        rest = rest.subspan(floats);
      }
    }
  }
}

std::string TorchEngine::FirstNotFinite() const {
  for (int step = 0; step < steps(); ++step) {
    const std::span<float> values = values_[step];
    const LayerDescription& layer = train_->description().layers[step];
    const std::string name = "\"" + layer.name() + "\" (" + layer.type() + ")";
    if (!Do([&] { return AllFinite(values, device_); })) return name + ", in its parameters";
    if (!Do([&] { return train_->IsFinite(step); })) return name + ", in its result";
  }
  return "";
}

TestResult TorchEngine::TestInMemory() {
  try {
    return TestAll();
  } catch (const c10::OutOfMemoryError&) {
    if (graphs_ == nullptr) throw;
  }
  // What graphs compute with is nobody else's memory until they are gone.
  LOG(WARNING) << "there is no memory for the test beside the CUDA graphs that passes are launched "
                  "as; these are captured anew after each test, where training.cuda_graphs: false "
                  "would save the time";
  train_->SetPauses(pauses_);
  return TestAll();
}

TestResult TorchEngine::TestAll() {
  TestResult all;
  for (size_t net = 0; net < tests_.size(); ++net) {
    TestResult result = tests_[net]->Run();
    if (net == 0) {
      all = std::move(result);
      continue;
    }
    for (TestOutput& output : result.outputs) {
      output.net = static_cast<int>(net);
      all.outputs.push_back(std::move(output));
    }
  }
  return all;
}

// An iteration makes and frees the same tensors as the one before. By default malloc would give the
// memory of large ones back to the kernel each time and get it zeroed, page by page, the next: a
// quarter of the time of CIFAR-10 quick.
void KeepFreedMemory() {
  mallopt(M_MMAP_MAX, 0);         // large tensors from the heap, too
  mallopt(M_TRIM_THRESHOLD, -1);  // the heap never shrinks
}

}  // namespace

void CheckTorchDevice(std::optional<int> cuda_device) { ToTorchDevice(cuda_device); }

std::unique_ptr<Engine> MakeTorchEngine(const TorchEngineOptions& options) {
  CHECK_GE(options.threads, 1);
  // Of all threads that are started here: oneDNN's products use the stack pointer for memory of the
  // heap, over which a signal's handler would write.
  const BlockedSignals blocked(kEndingSignals);
  KeepFreedMemory();
  at::set_num_threads(options.threads);
  openblas_set_num_threads(options.threads);  // libtorch's matrix products, in Debian's
  // Large enough to be shared, for which OpenMP starts all its threads.
  at::zeros({2 * at::internal::GRAIN_SIZE});
  if (!DeviceOf(options).is_cpu()) SetCudaArithmetic(options.deterministic, options.tf32);
  return AsErrors(DeviceOf(options), options.cuda_graphs,
                  [&] { return std::make_unique<TorchEngine>(options); });
}

}  // namespace poseidon
