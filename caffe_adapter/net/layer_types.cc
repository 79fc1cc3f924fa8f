#include "caffe_adapter/net/layer_types.h"

#include <algorithm>
#include <limits>

namespace poseidon {
namespace {

using Range = LayerType::Range;

constexpr int kMany = std::numeric_limits<int>::max();
constexpr Range kNone = {0, 0};
constexpr Range kOne = {1, 1};
constexpr Range kTwo = {2, 2};
constexpr Range kOneOrTwo = {1, 2};
constexpr Range kAny = {0, kMany};
constexpr Range kSome = {1, kMany};

LayerShapes Refuse(const LayerInput& input) {
  input.Fail("type", "this layer type is not supported: " +
                         std::string(FindLayerType(input.layer.type())->refused) +
                         ". A Caffe of your own that has it can be the worker instead");
}

// A layer that changes values one by one.
constexpr LayerType Neuron(std::string_view name,
                           LayerShapes (*infer)(const LayerInput&) = InferSameShape) {
  return {.name = name, .infer = infer, .bottoms = kOne, .tops = kOne, .in_place = true};
}

constexpr LayerType Loss(std::string_view name, LayerShapes (*infer)(const LayerInput&),
                         Range bottoms = kTwo, Range tops = kOne) {
  return {.name = name, .infer = infer, .bottoms = bottoms, .tops = tops, .loss = true};
}

constexpr LayerType Refused(std::string_view name, std::string_view reason) {
  return {.name = name, .infer = Refuse, .bottoms = kAny, .tops = kAny, .refused = reason};
}

constexpr LayerType kLayerTypes[] = {
    Neuron("AbsVal"),
    {.name = "Accuracy", .infer = InferAccuracy, .bottoms = kTwo, .tops = kOneOrTwo},
    {.name = "ArgMax", .infer = InferArgMax, .bottoms = kOne, .tops = kOne},
    {.name = "Axpy", .infer = InferAxpy, .bottoms = {3, 3}, .tops = kOne},
    Neuron("BNLL"),
    {.name = "BatchNorm", .infer = InferBatchNorm, .bottoms = kOne, .tops = kOne, .in_place = true},
    {.name = "BatchReindex", .infer = InferBatchReindex, .bottoms = kTwo, .tops = kOne},
    {.name = "Bias", .infer = InferBias, .bottoms = kOneOrTwo, .tops = kOne, .in_place = true},
    Neuron("Clip", InferClip),
    {.name = "Concat", .infer = InferConcat, .bottoms = kSome, .tops = kOne},
    Loss("ContrastiveLoss", InferContrastiveLoss, {3, 3}),
    {.name = "Convolution", .infer = InferConvolution, .bottoms = kSome, .tops = kSome},
    {.name = "Crop", .infer = InferCrop, .bottoms = kTwo, .tops = kOne},
    {.name = "Data", .infer = InferData, .bottoms = kNone, .tops = kOneOrTwo},
    {.name = "Deconvolution", .infer = InferDeconvolution, .bottoms = kSome, .tops = kSome},
    Neuron("Dropout", InferDropout),
    {.name = "DummyData", .infer = InferDummyData, .bottoms = kNone, .tops = kSome},
    Neuron("ELU"),
    {.name = "Eltwise",
     .infer = InferEltwise,
     .bottoms = {2, kMany},
     .tops = kOne,
     .in_place = true},
    {.name = "Embed", .infer = InferEmbed, .bottoms = kOne, .tops = kOne},
    Loss("EuclideanLoss", InferEuclideanLoss),
    Neuron("Exp", InferExp),
    {.name = "Filter", .infer = InferFilter, .bottoms = {2, kMany}, .tops = kSome},
    {.name = "Flatten", .infer = InferFlatten, .bottoms = kOne, .tops = kOne},
    {.name = "HDF5Data", .infer = InferHdf5Data, .bottoms = kNone, .tops = kSome},
    Refused("HDF5Output", "it writes files in each iteration; nothing else reads them"),
    Loss("HingeLoss", InferHingeLoss),
    {.name = "Im2col", .infer = InferIm2col, .bottoms = kOne, .tops = kOne},
    {.name = "ImageData", .infer = InferImageData, .bottoms = kNone, .tops = kTwo},
    Loss("InfogainLoss", InferInfogainLoss, {2, 3}, kOneOrTwo),
    {.name = "InnerProduct", .infer = InferInnerProduct, .bottoms = kOne, .tops = kOne},
    {.name = "Input", .infer = InferInput, .bottoms = kNone, .tops = kSome},
    {.name = "LRN", .infer = InferLrn, .bottoms = kOne, .tops = kOne},
    {.name = "LSTM", .infer = InferLstm, .bottoms = {2, 5}, .tops = {1, 3}},
    {.name = "LSTMUnit", .infer = InferLstmUnit, .bottoms = {3, 3}, .tops = kTwo},
    Neuron("Log", InferLog),
    {.name = "MVN", .infer = InferMvn, .bottoms = kOne, .tops = kOne, .in_place = true},
    {.name = "MemoryData", .infer = InferMemoryData, .bottoms = kNone, .tops = kTwo},
    Loss("MultinomialLogisticLoss", InferMultinomialLogisticLoss),
    Neuron("PReLU", InferPRelu),
    {.name = "Parameter", .infer = InferParameter, .bottoms = kNone, .tops = kOne},
    {.name = "Pooling", .infer = InferPooling, .bottoms = kOne, .tops = kOneOrTwo},
    Neuron("Power"),
    {.name = "Python", .infer = InferPython, .bottoms = kAny, .tops = kAny, .in_place = true},
    {.name = "RNN", .infer = InferRnn, .bottoms = {2, 4}, .tops = kOneOrTwo},
    Neuron("ReLU"),
    Refused("Recurrent", "it is what LSTM and RNN have in common and computes nothing by itself"),
    {.name = "Reduction", .infer = InferReduction, .bottoms = kOne, .tops = kOne},
    {.name = "Reshape", .infer = InferReshape, .bottoms = kOne, .tops = kOne},
    {.name = "SPP", .infer = InferSpp, .bottoms = kOne, .tops = kOne},
    {.name = "Scale", .infer = InferScale, .bottoms = kOneOrTwo, .tops = kOne, .in_place = true},
    Neuron("Sigmoid"),
    Loss("SigmoidCrossEntropyLoss", InferSigmoidCrossEntropyLoss),
    {.name = "Silence", .infer = InferSilence, .bottoms = kSome, .tops = kNone},
    {.name = "Slice", .infer = InferSlice, .bottoms = kOne, .tops = kSome},
    {.name = "Softmax", .infer = InferSoftmax, .bottoms = kOne, .tops = kOne, .in_place = true},
    Loss("SoftmaxWithLoss", InferSoftmaxWithLoss, kTwo, kOneOrTwo),
    {.name = "Split", .infer = InferSplit, .bottoms = kOne, .tops = kSome},
    Neuron("Swish"),
    Neuron("TanH"),
    Neuron("Threshold"),
    {.name = "Tile", .infer = InferTile, .bottoms = kOne, .tops = kOne},
    {.name = "WindowData", .infer = InferWindowData, .bottoms = kNone, .tops = kTwo},
};

}  // namespace

void LayerInput::Fail(const std::string& field, const std::string& message) const {
  throw ConfigError(options.locate(field.empty() ? path : path + "." + field),
                    "layer \"" + layer.name() + "\" (" + layer.type() + "): " + message);
}

int LayerInput::Axis(int axis, const std::string& field) const {
  const int axes = static_cast<int>(bottoms[0].size());
  if (axis < -axes || axis >= axes) {
    Fail(field, "axis is " + std::to_string(axis) + ", but bottom \"" + layer.bottom(0) + "\" is " +
                    ToString(bottoms[0]));
  }
  return axis < 0 ? axis + axes : axis;
}

std::string LayerInput::Bottom(int index) const {
  return "bottom \"" + layer.bottom(index) + "\", " + ToString(bottoms[index]);
}

std::span<const LayerType> LayerTypes() { return kLayerTypes; }

const LayerType* FindLayerType(std::string_view name) {
  const auto* found = std::find_if(std::begin(kLayerTypes), std::end(kLayerTypes),
                                   [&](const LayerType& type) { return type.name == name; });
  return found == std::end(kLayerTypes) ? nullptr : found;
}

std::string LayerTypeNames() {
  std::string names;
  for (const LayerType& type : kLayerTypes) {
    if (type.refused.empty()) names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  return names;
}

}  // namespace poseidon
