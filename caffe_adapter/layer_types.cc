#include "caffe_adapter/layer_types.h"

#include <limits>

namespace poseidon {
namespace {

constexpr int kMany = std::numeric_limits<int>::max();

constexpr LayerType kLayerTypes[] = {
    {.name = "Accuracy", .infer = InferAccuracy, .bottoms = {2, 2}, .tops = {1, 2}},
    {.name = "BatchNorm",
     .infer = InferBatchNorm,
     .bottoms = {1, 1},
     .tops = {1, 1},
     .in_place = true},
    {.name = "Concat", .infer = InferConcat, .bottoms = {1, kMany}, .tops = {1, 1}},
    {.name = "Convolution", .infer = InferConvolution, .bottoms = {1, 1}, .tops = {1, 1}},
    {.name = "Data", .infer = InferData, .bottoms = {0, 0}, .tops = {1, 2}},
    {.name = "Dropout", .infer = InferDropout, .bottoms = {1, 1}, .tops = {1, 1}, .in_place = true},
    {.name = "DummyData", .infer = InferDummyData, .bottoms = {0, 0}, .tops = {1, kMany}},
    {.name = "Eltwise",
     .infer = InferEltwise,
     .bottoms = {2, kMany},
     .tops = {1, 1},
     .in_place = true},
    {.name = "Flatten", .infer = InferFlatten, .bottoms = {1, 1}, .tops = {1, 1}},
    {.name = "InnerProduct", .infer = InferInnerProduct, .bottoms = {1, 1}, .tops = {1, 1}},
    {.name = "Input", .infer = InferInput, .bottoms = {0, 0}, .tops = {1, kMany}},
    {.name = "LRN", .infer = InferLrn, .bottoms = {1, 1}, .tops = {1, 1}},
    {.name = "Pooling", .infer = InferPooling, .bottoms = {1, 1}, .tops = {1, 1}},
    {.name = "ReLU", .infer = InferSameShape, .bottoms = {1, 1}, .tops = {1, 1}, .in_place = true},
    {.name = "Scale", .infer = InferScale, .bottoms = {1, 2}, .tops = {1, 1}, .in_place = true},
    {.name = "Sigmoid",
     .infer = InferSameShape,
     .bottoms = {1, 1},
     .tops = {1, 1},
     .in_place = true},
    {.name = "Softmax", .infer = InferSoftmax, .bottoms = {1, 1}, .tops = {1, 1}},
    {.name = "SoftmaxWithLoss",
     .infer = InferSoftmaxWithLoss,
     .bottoms = {2, 2},
     .tops = {1, 2},
     .loss = true},
    {.name = "Split", .infer = InferSplit, .bottoms = {1, 1}, .tops = {1, kMany}},
    {.name = "TanH", .infer = InferSameShape, .bottoms = {1, 1}, .tops = {1, 1}, .in_place = true},
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

const LayerType* FindLayerType(std::string_view name) {
  for (const LayerType& type : kLayerTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

std::string LayerTypeNames() {
  std::string names;
  for (const LayerType& type : kLayerTypes) {
    names += (names.empty() ? "" : ", ") + std::string(type.name);
  }
  return names;
}

}  // namespace poseidon
