#include "worker/torch_engine.h"

#include <ATen/Parallel.h>
#include <cblas.h>
#include <glog/logging.h>
#include <malloc.h>

#include <map>
#include <utility>
#include <vector>

#include "caffe_adapter/filler.h"
#include "worker/torch_net.h"

namespace poseidon {
namespace {

NetDescription DescribeTrainNet(const TorchEngineOptions& options) {
  DescribeOptions describe;
  describe.state = options.solver.train.state;
  describe.locate = options.solver.train.locate;
  describe.batch_size = options.batch_per_worker;
  return DescribeNet(options.solver.train.net, caffe::TRAIN, describe);
}

size_t ParameterCount(const LayerDescription& layer) {
  size_t count = 0;
  for (const ParameterDescription& parameter : layer.parameters) count += Count(parameter.shape);
  return count;
}

void FillLayer(const LayerDescription& layer, uint64_t seed, std::span<float> values) {
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    const ParameterDescription& parameter = layer.parameters[i];
    const size_t count = Count(parameter.shape);
    Fill(parameter.filler, parameter.shape, BlobSeed(seed, layer.name(), static_cast<int>(i)),
         values.first(count));
    values = values.subspan(count);
  }
}

// The step of the layer called `name`, if the net has it.
std::optional<int> FindStep(const TorchNet& net, const std::string& name) {
  const std::vector<LayerDescription>& layers = net.description().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].name() == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

// The layers of both nets that share parameters must agree on them.
void CheckSameParameters(const LayerDescription& train, const LayerDescription& test) {
  bool same = train.parameters.size() == test.parameters.size();
  for (size_t i = 0; same && i < train.parameters.size(); ++i) {
    same = train.parameters[i].shape == test.parameters[i].shape;
  }
  if (!same) {
    throw ConfigError(test.where, "layer \"" + test.name() +
                                      "\" has parameters of other shapes in TEST than in TRAIN (" +
                                      train.where.ToString() + ")");
  }
}

class TorchEngine : public Engine {
 public:
  explicit TorchEngine(const TorchEngineOptions& options);

  const ModelSpec& model() const override { return model_; }
  int64_t batch() const override { return model_.batch(); }

  int steps() const override { return static_cast<int>(train_.description().layers.size()); }
  const std::string& step_name(int step) const override {
    return train_.description().layers[step].name();
  }
  std::optional<int> layer_of_step(int step) const override { return layer_of_step_[step]; }

  void BindParameters(int layer, std::span<float> values) override;
  void FillParameters() override;

  void LoadBatch(int64_t iteration) override { train_.LoadBatch(iteration, iteration + 1); }
  void Forward(int step) override { train_.Forward(step); }
  void Backward(int step, const GradientTarget& target) override { train_.Backward(step, target); }
  float loss() const override { return train_.loss(); }

  TestResult Test() override;

 private:
  void MakeTestNet(const TorchEngineOptions& options);
  // Gives memory of the engine's own to the layers whose parameters the model lacks.
  void BindOwnParameters();
  void OwnParameters(const LayerDescription& layer);
  // In both nets.
  void Bind(const std::string& layer, std::span<float> values);
  std::optional<int> AccuracyStep() const;

  uint64_t seed_;
  TorchNet train_;
  std::optional<TorchNet> test_;
  int64_t test_batches_ = 0;
  ModelSpec model_;
  std::vector<std::optional<int>> layer_of_step_;
  std::vector<int> step_of_layer_;
  std::vector<std::span<float>> parameters_;                  // of the model's layers
  std::map<std::string, std::vector<float>> own_parameters_;  // by layer name
};

TorchEngine::TorchEngine(const TorchEngineOptions& options)
    : seed_(options.seed),
      train_(DescribeTrainNet(options), {.rank = options.rank,
                                         .workers = options.workers,
                                         .shuffle = options.shuffle,
                                         .seed = options.seed}),
      model_(ToModelSpec(train_.description(), options.solver.parameter)) {
  for (const LayerDescription& layer : train_.description().layers) {
    const int next = static_cast<int>(step_of_layer_.size());
    layer_of_step_.emplace_back(std::nullopt);
    if (next == model_.layers_size() || model_.layers(next).name() != layer.name()) continue;
    layer_of_step_.back() = next;
    step_of_layer_.push_back(static_cast<int>(layer_of_step_.size()) - 1);
  }
  CHECK_EQ(static_cast<int>(step_of_layer_.size()), model_.layers_size());
  parameters_.resize(model_.layers_size());
  MakeTestNet(options);
  BindOwnParameters();
}

void TorchEngine::MakeTestNet(const TorchEngineOptions& options) {
  // Worker 0 tests for all of them; only its machine needs the data.
  if (options.rank != 0 || options.solver.tests.empty()) return;
  test_.emplace(DescribeNet(options.solver.tests[0]),
                BatchReaderOptions{.rank = 0, .workers = 1, .shuffle = false, .seed = seed_});
  test_batches_ = options.solver.parameter.test_iter(0);
  for (const LayerDescription& layer : train_.description().layers) {
    const std::optional<int> step = FindStep(*test_, layer.name());
    if (step) CheckSameParameters(layer, test_->description().layers[*step]);
  }
}

void TorchEngine::BindOwnParameters() {
  const std::vector<LayerDescription>& layers = train_.description().layers;
  for (size_t step = 0; step < layers.size(); ++step) {
    if (!layer_of_step_[step]) OwnParameters(layers[step]);
  }
  if (!test_) return;
  for (const LayerDescription& layer : test_->description().layers) {
    if (!FindStep(train_, layer.name())) OwnParameters(layer);
  }
}

void TorchEngine::OwnParameters(const LayerDescription& layer) {
  if (layer.parameters.empty()) return;
  std::vector<float>& values = own_parameters_[layer.name()];
  values.resize(ParameterCount(layer));
  FillLayer(layer, seed_, values);
  Bind(layer.name(), values);
}

void TorchEngine::Bind(const std::string& layer, std::span<float> values) {
  if (const auto step = FindStep(train_, layer)) train_.BindParameters(*step, values);
  if (!test_) return;
  if (const auto step = FindStep(*test_, layer)) test_->BindParameters(*step, values);
}

void TorchEngine::BindParameters(int layer, std::span<float> values) {
  parameters_.at(layer) = values;
  Bind(model_.layers(layer).name(), values);
}

void TorchEngine::FillParameters() {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    FillLayer(train_.description().layers[step_of_layer_[i]], seed_, parameters_[i]);
  }
}

// Of several Accuracy layers (nets with classifiers on the way have some), the last with the least
// top_k.
std::optional<int> TorchEngine::AccuracyStep() const {
  const std::vector<LayerDescription>& layers = test_->description().layers;
  std::optional<int> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].type() != "Accuracy") continue;
    const auto top_k = [&](size_t step) { return layers[step].parameter.accuracy_param().top_k(); };
    if (!found || top_k(i) <= top_k(*found)) found = static_cast<int>(i);
  }
  return found;
}

TestResult TorchEngine::Test() {
  if (!test_) return {};
  const std::optional<int> accuracy_step = AccuracyStep();
  double accuracy = 0;
  double loss = 0;
  bool has_loss = false;
  for (int64_t batch = 0; batch < test_batches_; ++batch) {
    // After the last batch comes the first of the next test.
    test_->LoadBatch(batch, (batch + 1) % test_batches_);
    const std::vector<LayerDescription>& layers = test_->description().layers;
    for (size_t step = 0; step < layers.size(); ++step) {
      test_->Forward(static_cast<int>(step));
      for (const float weight : layers[step].loss_weights) has_loss |= weight != 0;
    }
    if (accuracy_step) accuracy += test_->Scalar(*accuracy_step);
    loss += test_->loss();
  }
  const auto mean = [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(test_batches_));
  };
  TestResult result;
  if (accuracy_step) result.accuracy = mean(accuracy);
  if (has_loss) result.loss = mean(loss);
  return result;
}

// An iteration makes and frees the same tensors as the one before. By default malloc would give the
// memory of large ones back to the kernel each time and get it zeroed, page by page, the next: a
// quarter of the time of CIFAR-10 quick.
void KeepFreedMemory() {
  mallopt(M_MMAP_MAX, 0);         // large tensors from the heap, too
  mallopt(M_TRIM_THRESHOLD, -1);  // the heap never shrinks
}

}  // namespace

std::unique_ptr<Engine> MakeTorchEngine(TorchEngineOptions options) {
  CHECK_GE(options.threads, 1);
  KeepFreedMemory();
  at::set_num_threads(options.threads);
  openblas_set_num_threads(options.threads);  // libtorch's matrix products, in Debian's
  return std::make_unique<TorchEngine>(options);
}

}  // namespace poseidon
