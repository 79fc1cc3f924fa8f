#include "worker/engine/balanced_batch.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include "caffe_adapter/data/sample_source.h"
#include "core/error.h"

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

// The axis of bottom 0 along which, or from which on, the layer takes values together, counted
// from the end if negative; none where it does not.
std::optional<int> FirstAxisTogether(const LayerDescription& layer) {
  const caffe::LayerParameter& p = layer.parameter;
  const std::string& type = layer.type();
  const bool learns = !layer.parameters.empty();
  if (type == "Softmax" || type == "SoftmaxWithLoss") return p.softmax_param().axis();
  if (type == "InfogainLoss") return p.infogain_loss_param().axis();
  if (type == "InnerProduct") return p.inner_product_param().axis();
  if (type == "Convolution" || type == "Deconvolution") return p.convolution_param().axis();
  // Values of a bottom are the sample's own, a single value is everyone's.
  if (type == "Scale" && learns && p.scale_param().num_axes() != 0) return p.scale_param().axis();
  if (type == "Bias" && learns && p.bias_param().num_axes() != 0) return p.bias_param().axis();
  return std::nullopt;
}

bool TakesSamplesTogether(const LayerDescription& layer) {
  const std::optional<int> axis = FirstAxisTogether(layer);
  if (!axis) return false;
  return *axis == 0 || *axis == -static_cast<int>(layer.bottoms[0].shape.size());
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
  if (layer.type() == "LSTM" || layer.type() == "RNN" || layer.type() == "LSTMUnit") {
    return "the first axis of its blobs is that of steps in time, not of samples";
  }
  if (TakesSamplesTogether(layer)) return "it takes axis 0 together, which is that of the samples";
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

void CheckBalance(const Job& job, const NetDescription& net) {
  if (job.training().batch() != Training::BALANCED) return;
  const std::string why = WhyNotBalanced(net);
  if (why.empty()) return;
  throw ConfigError("training.batch can't be BALANCED: " + why + "; leave it out");
}

}  // namespace poseidon
