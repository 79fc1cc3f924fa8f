#include "caffe_adapter/net/filtered_blobs.h"

#include <algorithm>
#include <iterator>

#include "core/text/listed.h"

namespace poseidon {
namespace {

// They compute each sample by itself, or sum over however many there are.
constexpr std::string_view kTakeAnyNumber[] = {
    "AbsVal",   "Accuracy",        "BNLL",          "Clip",    "Dropout",
    "ELU",      "Eltwise",         "EuclideanLoss", "Exp",     "InnerProduct",
    "Log",      "Power",           "ReLU",          "Sigmoid", "SigmoidCrossEntropyLoss",
    "Silence",  "SoftmaxWithLoss", "Split",         "Swish",   "TanH",
    "Threshold"};

// Null where all samples of the batch are.
const std::string* FilterOf(const std::string& blob, const FilteredBlobs& blobs) {
  const auto found = blobs.find(blob);
  return found == blobs.end() ? nullptr : &found->second;
}

std::string Samples(const std::string* filter) {
  return filter ? "those that layer \"" + *filter + "\" lets pass" : "all of the batch";
}

void CheckSameSamples(const LayerInput& input, const FilteredBlobs& blobs) {
  const std::string* first = FilterOf(input.layer.bottom(0), blobs);
  for (int i = 1; i < input.layer.bottom_size(); ++i) {
    const std::string* other = FilterOf(input.layer.bottom(i), blobs);
    if (first == other || (first && other && *first == *other)) continue;
    input.Fail("bottom." + std::to_string(i),
               "bottom \"" + input.layer.bottom(0) + "\" has other samples, " + Samples(first) +
                   ", than bottom \"" + input.layer.bottom(i) + "\", " + Samples(other));
  }
}

void CheckTakesAnyNumber(const LayerInput& input, const std::string& filter) {
  const std::string& type = input.layer.type();
  const std::string which = "layer \"" + filter + "\" (Filter) decides how many samples bottom \"" +
                            input.layer.bottom(0) + "\" has, ";
  const bool known = std::find(std::begin(kTakeAnyNumber), std::end(kTakeAnyNumber), type) !=
                     std::end(kTakeAnyNumber);
  if (!known) {
    input.Fail("type", which + "which this layer type has to know from the start; " +
                           Listed(kTakeAnyNumber) + " take any number");
  }
  const bool from_axis_1 = type != "InnerProduct" || input.layer.inner_product_param().axis() == 1;
  if (!from_axis_1) input.Fail("inner_product_param.axis", which + "so that axis must be 1");
  if (type == "SoftmaxWithLoss" || type == "Accuracy") {
    const int axis = type == "Accuracy" ? input.layer.accuracy_param().axis()
                                        : input.layer.softmax_param().axis();
    if (input.Axis(axis, "") == 0) input.Fail("", which + "so that classes can't lie along axis 0");
    if (input.layer.top_size() > 1) input.Fail("top.1", which + "so that there is one top only");
  }
}

}  // namespace

void AddFilteredTops(const LayerInput& input, const std::vector<Shape>& tops,
                     FilteredBlobs& blobs) {
  if (input.layer.type() == "Filter") {
    for (int i = 0; i < input.layer.bottom_size(); ++i) {
      if (!FilterOf(input.layer.bottom(i), blobs)) continue;
      input.Fail("bottom." + std::to_string(i),
                 "bottom \"" + input.layer.bottom(i) + "\" comes through a Filter layer already");
    }
    for (const std::string& top : input.layer.top()) blobs[top] = input.layer.name();
    return;
  }
  const bool any =
      std::any_of(input.layer.bottom().begin(), input.layer.bottom().end(),
                  [&](const std::string& bottom) { return FilterOf(bottom, blobs) != nullptr; });
  if (!any) return;
  if (input.layer.type() != "Silence") CheckSameSamples(input, blobs);
  const auto filtered =
      std::find_if(input.layer.bottom().begin(), input.layer.bottom().end(),
                   [&](const std::string& bottom) { return FilterOf(bottom, blobs) != nullptr; });
  const std::string filter = *FilterOf(*filtered, blobs);
  CheckTakesAnyNumber(input, filter);
  for (int i = 0; i < input.layer.top_size(); ++i) {
    if (!tops[i].empty()) blobs[input.layer.top(i)] = filter;
  }
}

FilteredBlobs FindFilteredBlobs(const NetDescription& net) {
  FilteredBlobs blobs;
  for (const LayerDescription& layer : net.layers) {
    const auto bottom = std::find_if(
        layer.bottoms.begin(), layer.bottoms.end(),
        [&](const BlobDescription& blob) { return FilterOf(blob.name, blobs) != nullptr; });
    if (layer.type() != "Filter" && bottom == layer.bottoms.end()) continue;
    const std::string filter = layer.type() == "Filter" ? layer.name() : blobs.at(bottom->name);
    for (const BlobDescription& top : layer.tops) {
      if (!top.shape.empty()) blobs[top.name] = filter;
    }
  }
  return blobs;
}

}  // namespace poseidon
