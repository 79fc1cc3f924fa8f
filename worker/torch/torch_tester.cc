#include "worker/torch/torch_tester.h"

#include <algorithm>
#include <map>
#include <utility>

#include "caffe_adapter/net/filtered_blobs.h"

namespace poseidon {
namespace {

// Larger blobs are images or features, no results for people.
constexpr int64_t kMostValues = 1000;

}  // namespace

TorchTester::TorchTester(NetDescription description, const BatchReaderOptions& data,
                         int64_t batches, at::Device device, EngineDevice* engine_device)
    : net_(std::move(description), data,
           {.device = device, .engine_device = engine_device, .precision = {}, .loss_scaling = {}}),
      batches_(batches) {
  FindOutputs();
}

void TorchTester::FindOutputs() {
  std::map<std::string, Output> unread;
  // What comes through a Filter layer has another number of values in each batch.
  const FilteredBlobs filtered = FindFilteredBlobs(description());
  for (size_t step = 0; step < description().layers.size(); ++step) {
    const LayerDescription& layer = description().layers[step];
    for (const BlobDescription& bottom : layer.bottoms) unread.erase(bottom.name);
    for (size_t top = 0; top < layer.tops.size(); ++top) {
      if (Count(layer.tops[top].shape) > kMostValues) continue;
      if (filtered.contains(layer.tops[top].name)) continue;
      unread[layer.tops[top].name] = {static_cast<int>(step), static_cast<int>(top)};
    }
  }
  for (const auto& [name, output] : unread) outputs_.push_back(output);
  std::sort(outputs_.begin(), outputs_.end(), [](const Output& a, const Output& b) {
    return std::pair(a.step, a.top) < std::pair(b.step, b.top);
  });
}

// Of several Accuracy layers (nets with classifiers on the way have some), the last with the least
// top_k.
std::optional<int> TorchTester::AccuracyStep() const {
  const std::vector<LayerDescription>& layers = description().layers;
  std::optional<int> found;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].type() != "Accuracy") continue;
    const auto top_k = [&](size_t step) { return layers[step].parameter.accuracy_param().top_k(); };
    if (!found || top_k(i) <= top_k(*found)) found = static_cast<int>(i);
  }
  return found;
}

TestResult TorchTester::Run(const std::function<void(int64_t done, int64_t all)>& progress) {
  const std::optional<int> accuracy_step = AccuracyStep();
  double accuracy = 0;
  double loss = 0;
  bool has_loss = false;
  std::vector<std::vector<double>> sums(outputs_.size());
  for (int64_t batch = 0; batch < batches_; ++batch) {
    // After the last batch comes the first of the next test.
    net_.LoadBatch(batch, (batch + 1) % batches_);
    const std::vector<LayerDescription>& layers = description().layers;
    for (size_t step = 0; step < layers.size(); ++step) {
      net_.Forward(static_cast<int>(step));
      for (const float weight : layers[step].loss_weights) has_loss |= weight != 0;
    }
    if (accuracy_step) accuracy += net_.Scalar(*accuracy_step);
    loss += net_.loss();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::vector<float> values = net_.TopValues(outputs_[i].step, outputs_[i].top);
      sums[i].resize(values.size());
      for (size_t v = 0; v < values.size(); ++v) sums[i][v] += values[v];
    }
    if (progress) progress(batch + 1, batches_);
  }
  const auto mean = [&](double sum) {
    return static_cast<float>(sum / static_cast<double>(batches_));
  };
  TestResult result;
  if (accuracy_step) result.accuracy = mean(accuracy);
  if (has_loss) result.loss = mean(loss);
  for (size_t i = 0; i < outputs_.size(); ++i) {
    TestOutput& output = result.outputs.emplace_back();
    output.blob = description().layers[outputs_[i].step].tops[outputs_[i].top].name;
    for (const double sum : sums[i]) output.values.push_back(mean(sum));
  }
  return result;
}

}  // namespace poseidon
