#include "scheduler/agreement/model_difference.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <sstream>

#include "proto/model.pb.h"

namespace poseidon {
namespace {

using google::protobuf::util::MessageDifferencer;

std::string ShapeOf(const BlobSpec& blob) {
  std::string text;
  for (const int64_t extent : blob.shape()) {
    text += (text.empty() ? "" : " x ") + std::to_string(extent);
  }
  return text;
}

std::string DescribeLayer(const LayerSpec& layer) {
  std::string shapes;
  for (const BlobSpec& blob : layer.blobs()) {
    shapes += (shapes.empty() ? "" : ", ") + ShapeOf(blob);
  }
  return "\"" + layer.name() + "\" (" + shapes + ")";
}

// Each worker clips by its own, so that no other number tells.
std::string ClippingOf(const UpdateRuleSpec& rule) {
  if (!rule.has_clip_gradients()) return "no clip_gradients";
  std::ostringstream text;
  text << "clip_gradients " << rule.clip_gradients();
  return text.str();
}

}  // namespace

std::string DescribeModelDifference(const std::string& serialized,
                                    const std::string& serialized_other) {
  ModelSpec model;
  ModelSpec other;
  if (!model.ParseFromString(serialized) || !other.ParseFromString(serialized_other)) {
    return "one of them is not readable";
  }
  const int layers = std::min(model.layers_size(), other.layers_size());
  for (int l = 0; l < layers; ++l) {
    if (MessageDifferencer::Equals(model.layers(l), other.layers(l))) continue;
    const std::string mine = DescribeLayer(model.layers(l));
    const std::string theirs = DescribeLayer(other.layers(l));
    if (mine == theirs) return "layer " + mine + " has other rates, times or factors";
    return "its layer " + std::to_string(l) + " is " + mine + ", the other's " + theirs;
  }
  if (model.layers_size() != other.layers_size()) {
    return "it has " + std::to_string(model.layers_size()) + " layers that learn, the other " +
           std::to_string(other.layers_size());
  }
  const std::string mine = ClippingOf(model.update_rule());
  const std::string theirs = ClippingOf(other.update_rule());
  if (mine != theirs) return "its solver has " + mine + ", the other's " + theirs;
  return "their layers are the same, but not the optimizer, the batch, the iterations or the name";
}

}  // namespace poseidon
