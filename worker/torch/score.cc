#include "worker/torch/score.h"

#include <ATen/Parallel.h>
#include <cblas.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/filler.h"
#include "core/text/listed.h"
#include "worker/torch/torch_error.h"
#include "worker/torch/torch_tester.h"

namespace poseidon {
namespace {

constexpr uint64_t kSeed = 1;  // of fillers, where no file has the values

// By layer and blob, as the net's fillers have it.
NetValues FilledValues(const NetDescription& net) {
  NetValues values;
  for (const LayerDescription& layer : net.layers) {
    std::vector<float> owned(layer.owned_floats());
    FillLayer(layer, kSeed, owned);
    std::span<const float> rest = owned;
    std::vector<std::vector<float>>& blobs = values.emplace_back();
    for (const ParameterDescription& parameter : layer.parameters) {
      const std::span<const float> blob = rest.first(parameter.owner ? 0 : Count(parameter.shape));
      blobs.emplace_back(blob.begin(), blob.end());
      rest = rest.subspan(blob.size());
    }
  }
  return values;
}

// The values of what a layer owns, one after the other.
std::vector<float> Joined(const std::vector<std::vector<float>>& blobs) {
  std::vector<float> joined;
  for (const std::vector<float>& blob : blobs)
    joined.insert(joined.end(), blob.begin(), blob.end());
  return joined;
}

using Tell = std::function<void(const std::string&)>;
using Progress = std::function<void(int64_t done, int64_t all)>;

void ReadWeights(const std::vector<std::string>& weights, const NetDescription& net,
                 NetValues& values, const Tell& tell) {
  std::set<std::pair<size_t, size_t>> filled;  // layer and blob
  for (size_t l = 0; l < net.layers.size(); ++l) {
    for (size_t b = 0; b < net.layers[l].parameters.size(); ++b) {
      if (!net.layers[l].parameters[b].owner) filled.emplace(l, b);
    }
  }
  const bool has_values = !filled.empty();
  for (const std::string& path : weights) {
    const CopiedLayers layers = ReadCaffemodel(path, net, values);
    for (const auto& place : layers.places) filled.erase(place);
    if (has_values) tell(path + ": " + ToString(layers));
  }
  if (filled.empty()) return;
  std::set<std::string> lacking;
  for (const auto& [layer, blob] : filled) lacking.insert(net.layers[layer].name());
  tell("warning: no file has values for " + Listed(lacking) +
       ", so the score is that of what the fillers give there; layers are found by their names");
}

// Whether the net's loss is that of one blob, of weight 1, which no layer reads: a result anyway.
bool LossIsAResult(const NetDescription& net, const TestResult& result) {
  int losses = 0;
  std::string blob;
  for (const LayerDescription& layer : net.layers) {
    for (size_t top = 0; top < layer.tops.size(); ++top) {
      if (layer.loss_weights[top] == 0) continue;
      if (layer.loss_weights[top] != 1) return false;
      blob = layer.tops[top].name;
      ++losses;
    }
  }
  const auto reads = [&blob](const LayerDescription& layer) {
    return std::ranges::any_of(
        layer.bottoms, [&blob](const BlobDescription& bottom) { return bottom.name == blob; });
  };
  if (losses != 1 || std::ranges::any_of(net.layers, reads)) return false;
  return std::ranges::any_of(result.outputs, [&blob](const TestOutput& output) {
    return output.blob == blob && output.values.size() == 1;
  });
}

TestResult Score(const SolverNet& net, const std::vector<std::string>& weights, int64_t batches,
                 const Tell& tell, const Progress& progress) {
  NetDescription description = DescribeNet(net);
  // Nobody learns here, so all that a Python layer has is its own.
  for (LayerDescription& layer : description.layers) {
    for (ParameterDescription& parameter : layer.parameters) parameter.lr_mult = 0;
  }
  TorchTester tester(description, {.rank = 0, .workers = 1, .shuffle = false, .seed = kSeed},
                     batches);
  NetValues values = FilledValues(description);
  ReadWeights(weights, description, values, tell);
  std::vector<std::vector<float>> memory;
  for (const std::vector<std::vector<float>>& blobs : values) memory.push_back(Joined(blobs));
  for (size_t step = 0; step < memory.size(); ++step) {
    if (!memory[step].empty()) tester.BindParameters(static_cast<int>(step), memory[step]);
  }
  TestResult result = tester.Run(progress);
  if (LossIsAResult(description, result)) result.loss.reset();
  return result;
}

}  // namespace

TestResult ScoreNet(const SolverNet& net, const std::vector<std::string>& weights, int64_t batches,
                    int threads, const Tell& tell, const Progress& progress) {
  at::set_num_threads(threads);
  openblas_set_num_threads(threads);
  return AsErrors(at::kCPU, false, [&] { return Score(net, weights, batches, tell, progress); });
}

}  // namespace poseidon
