#include "cli/input/sample_input.h"

#include <nlohmann/json.hpp>

#include "caffe_adapter/data/sample_shapes.h"

namespace poseidon {
namespace {

// As --input takes it.
std::string FlagText(const Shape& shape) {
  std::string text;
  for (const int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

const char* NameOf(ShapeSource source) {
  switch (source) {
    case ShapeSource::kGiven:
      return "given";
    case ShapeSource::kData:
      return "data";
    case ShapeSource::kInputLayer:
      return "input_layer";
    case ShapeSource::kImageSize:
      return "image_size";
    case ShapeSource::kCropSize:
      return "crop_size";
  }
  return "";
}

std::string ExplainInput(const SampleInput& input) {
  const std::string missing = " (" + input.data + " is not there)";
  switch (input.source) {
    case ShapeSource::kGiven:
      return "as --input says";
    case ShapeSource::kData:
      return "as in " + input.data;
    case ShapeSource::kInputLayer:
      return "as the net's Input layer says" + missing;
    case ShapeSource::kImageSize:
      return "as its new_height and new_width say" + missing;
    case ShapeSource::kCropSize:
      return "as its crop_size says, with " + std::to_string(input.shape[0]) +
             (input.shape[0] == 1 ? " channel" : " channels") + missing;
  }
  return "";
}

}  // namespace

std::vector<SampleInput> SampleInputsOf(const NetDescription& net) {
  std::vector<SampleInput> inputs;
  for (const LayerDescription& layer : net.layers) {
    if (!layer.shape_source) continue;
    const Shape& batch = layer.tops[0].shape;
    inputs.push_back({layer.name(), DataPath(layer.parameter),
                      Shape(batch.begin() + 1, batch.end()), *layer.shape_source});
  }
  return inputs;
}

std::string SampleInputLines(const std::vector<SampleInput>& inputs) {
  std::string lines;
  for (const SampleInput& input : inputs) {
    lines += "samples of layer \"" + input.layer + "\": " + FlagText(input.shape) + ", " +
             ExplainInput(input) + "\n";
  }
  return lines;
}

nlohmann::ordered_json SampleInputsJson(const std::vector<SampleInput>& inputs) {
  auto json = nlohmann::ordered_json::array();
  for (const SampleInput& input : inputs) {
    json.push_back(
        {{"layer", input.layer}, {"shape", input.shape}, {"source", NameOf(input.source)}});
  }
  return json;
}

}  // namespace poseidon
