#include "worker/engine/balanced_batch.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "caffe_adapter/data/sample_source.h"

namespace poseidon {
namespace {

constexpr std::array<std::string_view, 7> kMeans = {
    "SoftmaxWithLoss", "SigmoidCrossEntropyLoss", "EuclideanLoss",
    "HingeLoss",       "MultinomialLogisticLoss", "InfogainLoss",
    "ContrastiveLoss"};

bool IsMean(const LayerDescription& layer) {
  return std::ranges::find(kMeans, layer.type()) != kMeans.end();
}

bool IsLoss(const LayerDescription& layer) {
  return std::ranges::any_of(layer.loss_weights, [](float weight) { return weight != 0; });
}

std::string WhyNotLoss(const LayerDescription& layer) {
  const caffe::LossParameter& loss = layer.parameter.loss_param();
  if (!IsMean(layer)) return "what it adds to the loss is no mean over samples";
  if (loss.has_normalization() && loss.normalization() == caffe::LossParameter::NONE) {
    return "its loss is a sum over samples (loss_param.normalization NONE)";
  }
  if (loss.has_ignore_label()) {
    return "its loss is a mean over the labels that are not ignored (loss_param.ignore_label), "
           "whose number the parts do not tell";
  }
  return "";
}

std::string WhyNotRows(const LayerDescription& layer, int64_t batch) {
  const caffe::ReshapeParameter& reshape = layer.parameter.reshape_param();
  const bool first_axis = reshape.axis() == 0 && reshape.shape().dim_size() > 0;
  if (layer.type() == "Reshape" && first_axis && reshape.shape().dim(0) > 0) {
    return "its shape has a fixed number of samples";
  }
  for (const BlobDescription& top : layer.tops) {
    const bool is_number = top.shape.empty() && (IsLoss(layer) || layer.type() == "Accuracy");
    if (is_number || (!top.shape.empty() && top.shape[0] == batch)) continue;
    return "its blob \"" + top.name + "\" does not have a row for each sample";
  }
  return "";
}

std::string WhyNot(const LayerDescription& layer, int64_t batch) {
  if (layer.bottoms.empty() && !ReadsSamples(layer.type())) {
    return "it reads no data base or files, so its samples can't be shared out anew";
  }
  if (layer.type() == "Python") {
    return "whether it computes each sample by itself, only its author knows";
  }
  if (layer.type() == "BatchNorm") {
    return "it normalizes by the statistics of the worker's own samples, which would be of "
           "different numbers of them";
  }
  if (layer.type() == "BatchReindex" || layer.type() == "Filter") {
    return "it chooses samples by their place in the batch";
  }
  if (IsLoss(layer)) {
    if (std::string why = WhyNotLoss(layer); !why.empty()) return why;
  }
  return WhyNotRows(layer, batch);
}

}  // namespace

std::string WhyNotBalanced(const NetDescription& net) {
  for (const LayerDescription& layer : net.layers) {
    const std::string why = WhyNot(layer, net.batch);
    if (why.empty()) continue;
    return layer.where.ToString() + ": layer \"" + layer.name() + "\" (" + layer.type() +
           "): " + why;
  }
  return "";
}

}  // namespace poseidon
