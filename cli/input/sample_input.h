// What told verbs the shape of the samples that a net reads, for people and for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/shape.h"

namespace poseidon {

// A layer that reads samples.
struct SampleInput {
  std::string layer;
  std::string data;  // the path that it reads
  Shape shape;       // of a sample of its first top, after cropping: {3, 224, 224}
  ShapeSource source = ShapeSource::kData;
};

// The layers of the net that read samples, in its order.
std::vector<SampleInput> SampleInputsOf(const NetDescription& net);

// A line for each: `samples of layer "data": 1x28x28, as in out/digits/train_lmdb`.
std::string SampleInputLines(const std::vector<SampleInput>& inputs);

// An array of objects with `layer`, `shape` and `source`: "given", "data", "input_layer",
// "image_size" or "crop_size".
nlohmann::ordered_json SampleInputsJson(const std::vector<SampleInput>& inputs);

}  // namespace poseidon
