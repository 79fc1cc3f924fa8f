#include "worker/torch/capturable_layers.h"

#include <algorithm>
#include <string_view>

#include "worker/torch/layers/torch_data_layer.h"

namespace poseidon {
namespace {

constexpr std::string_view kAlikeEachPass[] = {
    "BatchNorm", "Bias",         "Concat", "Convolution", "Deconvolution", "Eltwise",
    "Flatten",   "InnerProduct", "LRN",    "Pooling",     "ReLU",          "Reshape",
    "Scale",     "Sigmoid",      "Slice",  "Split",       "TanH"};

constexpr std::string_view kMayBeDoneTwice[] = {
    "Accuracy", "Dropout", "EuclideanLoss",  "SigmoidCrossEntropyLoss",
    "Silence",  "Softmax", "SoftmaxWithLoss"};

}  // namespace

bool IsAlikeEachPass(const LayerDescription& layer) {
  const bool alike = std::ranges::find(kAlikeEachPass, layer.type()) != std::end(kAlikeEachPass);
  return alike && layer.parameter.pooling_param().pool() != caffe::PoolingParameter::STOCHASTIC;
}

bool MayBeDoneTwice(const LayerDescription& layer) {
  if (IsDataLayer(layer)) return layer.type() != "Python";
  return std::ranges::find(kMayBeDoneTwice, layer.type()) != std::end(kMayBeDoneTwice);
}

}  // namespace poseidon
