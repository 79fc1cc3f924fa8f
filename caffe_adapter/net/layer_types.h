// The layer types of Caffe: for each a function that infers shapes, or why it is refused. A new
// type is one function and one line of the table in layer_types.cc (and, unless it is a data layer,
// one of worker/torch/layers/torch_layer.cc); docs/caffe_layers.md lists what of each is supported.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "caffe_adapter/net/net.h"

namespace poseidon {

// What a layer's shapes are inferred from. References outlive the inference only.
struct LayerInput {
  const caffe::LayerParameter& layer;
  const std::vector<Shape>& bottoms;  // as many as the type takes
  const DescribeOptions& options;
  const caffe::NetParameter& net;  // with the layers of all phases
  std::string path;                // of the layer in its net: "layer.3"

  // Throws ConfigError: the place of the layer's field (dotted; "" for the layer; of a field that
  // is not written, what it would be in), its name and type, and the message.
  [[noreturn]] void Fail(const std::string& field, const std::string& message) const;

  // An axis of bottom 0, counted from the end if negative. Fails if there is no such axis.
  int Axis(int axis, const std::string& field) const;

  // "bottom "data", 2 x 3".
  std::string Bottom(int index) const;
};

struct LayerShapes {
  std::vector<Shape> tops;
  std::vector<ParameterDescription> parameters;
  std::optional<ShapeSource> source = std::nullopt;  // of a layer that reads samples
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
  // What a known type of Caffe's is that is not supported, and why not. `infer` fails then.
  std::string_view refused = "";
};

// All types, by name.
std::span<const LayerType> LayerTypes();

// Null for an unknown type.
const LayerType* FindLayerType(std::string_view name);

// Names of the types that are supported, comma separated, for errors.
std::string LayerTypeNames();

// files/written_values.cc: as in Caffe, values that a layer is written with (`blobs`) take the
// fillers' place. Fails if they are of another number or shape than the parameters.
void TakeWrittenValues(const LayerInput& input, std::vector<ParameterDescription>& parameters);

// source_layers.cc: layers without bottoms.
LayerShapes InferData(const LayerInput& input);
LayerShapes InferInput(const LayerInput& input);
LayerShapes InferDummyData(const LayerInput& input);
LayerShapes InferHdf5Data(const LayerInput& input);
LayerShapes InferImageData(const LayerInput& input);
LayerShapes InferMemoryData(const LayerInput& input);
LayerShapes InferWindowData(const LayerInput& input);

// image_layers.cc: layers that slide a window, or take (num, channels, height, width).
LayerShapes InferConvolution(const LayerInput& input);
LayerShapes InferDeconvolution(const LayerInput& input);
LayerShapes InferIm2col(const LayerInput& input);
LayerShapes InferPooling(const LayerInput& input);
LayerShapes InferSpp(const LayerInput& input);
LayerShapes InferLrn(const LayerInput& input);
LayerShapes InferMvn(const LayerInput& input);

// dense_layers.cc: further layers with parameters.
LayerShapes InferInnerProduct(const LayerInput& input);
LayerShapes InferEmbed(const LayerInput& input);
LayerShapes InferBatchNorm(const LayerInput& input);
LayerShapes InferScale(const LayerInput& input);
LayerShapes InferBias(const LayerInput& input);
LayerShapes InferPRelu(const LayerInput& input);
LayerShapes InferParameter(const LayerInput& input);

// blob_layers.cc: layers that compute on blobs of any shape.
LayerShapes InferSameShape(const LayerInput& input);
LayerShapes InferDropout(const LayerInput& input);
LayerShapes InferExp(const LayerInput& input);
LayerShapes InferLog(const LayerInput& input);
LayerShapes InferClip(const LayerInput& input);
LayerShapes InferEltwise(const LayerInput& input);
LayerShapes InferAxpy(const LayerInput& input);
LayerShapes InferSoftmax(const LayerInput& input);
LayerShapes InferReduction(const LayerInput& input);
LayerShapes InferArgMax(const LayerInput& input);

// recurrent_layers.cc: layers that step through time.
LayerShapes InferLstm(const LayerInput& input);
LayerShapes InferRnn(const LayerInput& input);
LayerShapes InferLstmUnit(const LayerInput& input);

// reshaping_layers.cc: layers that cut, join and reshape blobs without computing.
LayerShapes InferConcat(const LayerInput& input);
LayerShapes InferSlice(const LayerInput& input);
LayerShapes InferSplit(const LayerInput& input);
LayerShapes InferFlatten(const LayerInput& input);
LayerShapes InferReshape(const LayerInput& input);
LayerShapes InferCrop(const LayerInput& input);
LayerShapes InferTile(const LayerInput& input);
LayerShapes InferBatchReindex(const LayerInput& input);
LayerShapes InferFilter(const LayerInput& input);
LayerShapes InferSilence(const LayerInput& input);

// loss_layers.cc: losses, and Accuracy.
LayerShapes InferSoftmaxWithLoss(const LayerInput& input);
LayerShapes InferInfogainLoss(const LayerInput& input);
LayerShapes InferMultinomialLogisticLoss(const LayerInput& input);
LayerShapes InferHingeLoss(const LayerInput& input);
LayerShapes InferSigmoidCrossEntropyLoss(const LayerInput& input);
LayerShapes InferEuclideanLoss(const LayerInput& input);
LayerShapes InferContrastiveLoss(const LayerInput& input);
LayerShapes InferAccuracy(const LayerInput& input);

// caffe_adapter/python/net_python_layer.cc: a layer of the user's own.
LayerShapes InferPython(const LayerInput& input);

}  // namespace poseidon
