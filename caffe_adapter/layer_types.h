// The layer types that a net may have, each with a function that infers shapes. A new type is one
// function and one line of the table in layer_types.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "caffe_adapter/net.h"

namespace poseidon {

// What a layer's shapes are inferred from. References outlive the inference only.
struct LayerInput {
  const caffe::LayerParameter& layer;
  const std::vector<Shape>& bottoms;  // as many as the type takes
  const DescribeOptions& options;
  std::string path;  // of the layer in its net: "layer.3"

  // Throws ConfigError: the place of the layer's field (dotted; "" for the layer), its name and
  // type, and the message.
  [[noreturn]] void Fail(const std::string& field, const std::string& message) const;

  // An axis of bottom 0, counted from the end if negative. Fails if there is no such axis.
  int Axis(int axis, const std::string& field) const;
};

struct LayerShapes {
  std::vector<Shape> tops;
  std::vector<ParameterDescription> parameters;
};

struct LayerType {
  // How many bottoms or tops; from min to max.
  struct Range {
    int min;
    int max;
  };

  std::string_view name;
  LayerShapes (*infer)(const LayerInput& input);
  Range bottoms;
  Range tops;
  bool in_place = false;  // a top may be the bottom at its index
  bool loss = false;      // the first top has loss weight 1 unless the layer says otherwise
};

// Null for an unknown type.
const LayerType* FindLayerType(std::string_view name);

// Names of all types, comma separated, for errors.
std::string LayerTypeNames();

// source_layers.cc: layers without bottoms.
LayerShapes InferData(const LayerInput& input);
LayerShapes InferInput(const LayerInput& input);
LayerShapes InferDummyData(const LayerInput& input);

// image_layers.cc: layers that slide a window over (num, channels, height, width).
LayerShapes InferConvolution(const LayerInput& input);
LayerShapes InferPooling(const LayerInput& input);
LayerShapes InferLrn(const LayerInput& input);

// dense_layers.cc: further layers with parameters.
LayerShapes InferInnerProduct(const LayerInput& input);
LayerShapes InferBatchNorm(const LayerInput& input);
LayerShapes InferScale(const LayerInput& input);

// blob_layers.cc: layers without parameters, of any shape.
LayerShapes InferSameShape(const LayerInput& input);
LayerShapes InferDropout(const LayerInput& input);
LayerShapes InferConcat(const LayerInput& input);
LayerShapes InferEltwise(const LayerInput& input);
LayerShapes InferFlatten(const LayerInput& input);
LayerShapes InferSplit(const LayerInput& input);
LayerShapes InferSoftmax(const LayerInput& input);
LayerShapes InferSoftmaxWithLoss(const LayerInput& input);
LayerShapes InferAccuracy(const LayerInput& input);

}  // namespace poseidon
