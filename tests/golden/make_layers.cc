#include <google/protobuf/text_format.h>

#include <boost/make_shared.hpp>
#include <caffe/caffe.hpp>
#include <filesystem>
#include <map>

#include "core/random.h"
#include "tests/golden/golden.h"
#include "tests/golden/layer_cases.h"

namespace poseidon {
namespace {

using Blob = ::caffe::Blob<float>;
using Blobs = std::vector<Blob*>;
using SharedBlobs = std::vector<boost::shared_ptr<Blob>>;

float Draw(Random& random, float low, float high) {
  return low + (high - low) * static_cast<float>(random.Uniform());
}

void Fill(const GoldenBottom& bottom, Random& random, float* values) {
  const int classes = bottom.shape.size() > 1 ? bottom.shape[1] : 1;
  int count = 1;
  for (const int extent : bottom.shape) count *= extent;
  for (int i = 0; i < count; ++i) {
    switch (bottom.values) {
      case Values::kNoise:
        values[i] = Draw(random, -2, 2);
        break;
      case Values::kPositive:
      case Values::kProbabilities:
        values[i] = Draw(random, 0.1F, 2);
        break;
      case Values::kNumbers:
        values[i] = static_cast<float>(random.Below(static_cast<uint64_t>(bottom.bound)));
        break;
      case Values::kTies:
        values[i] = static_cast<float>(random.Below(3)) - 1;
        break;
      case Values::kFar:
        values[i] = Draw(random, -300, 300);
        break;
    }
  }
  if (bottom.values != Values::kProbabilities) return;
  for (int row = 0; row < count; row += classes) {
    float sum = 0;
    for (int i = 0; i < classes; ++i) sum += values[row + i];
    for (int i = 0; i < classes; ++i) values[row + i] /= sum;
  }
}

// A case's layer, as it would be written in a net.
::caffe::LayerParameter Parameter(const GoldenCase& golden) {
  ::caffe::LayerParameter layer;
  CHECK(google::protobuf::TextFormat::ParseFromString(golden.parameters, &layer))
      << golden.type << ", " << golden.setting;
  layer.set_name(golden.setting);
  layer.set_type(golden.type);
  layer.set_phase(golden.testing ? ::caffe::TEST : ::caffe::TRAIN);
  for (size_t i = 0; i < golden.bottoms.size(); ++i) {
    layer.add_bottom("bottom" + std::to_string(i));
    layer.add_propagate_down(golden.bottoms[i].gradient);
  }
  if (layer.top_size() == 0 && golden.type != "Silence") layer.add_top("top");
  return layer;
}

Blobs Pointers(const SharedBlobs& blobs) {
  Blobs pointers;
  for (const auto& blob : blobs) pointers.push_back(blob.get());
  return pointers;
}

void Save(const SharedBlobs& blobs, ::caffe::LayerParameter& layer) {
  for (const auto& blob : blobs) blob->ToProto(layer.add_blobs(), /*write_diff=*/true);
}

// Statistics are positive; other parameters are noise.
void FillParameters(const GoldenCase& golden, const SharedBlobs& blobs, Random& random) {
  for (size_t i = 0; i < blobs.size(); ++i) {
    const bool positive = golden.type == "BatchNorm" && i > 0;
    Fill({.shape = blobs[i]->shape(), .values = positive ? Values::kPositive : Values::kNoise},
         random, blobs[i]->mutable_cpu_data());
    if (golden.zeros) ::caffe::caffe_set(blobs[i]->count(), 0.0F, blobs[i]->mutable_cpu_data());
    ::caffe::caffe_set(blobs[i]->count(), 0.0F, blobs[i]->mutable_cpu_diff());
  }
}

// Sets the gradients at the tops, unless they are losses: SetUp has done so for those.
void FillTopGradients(const ::caffe::Layer<float>& layer, const Blobs& tops, Random& random) {
  for (size_t i = 0; i < tops.size(); ++i) {
    if (layer.loss(static_cast<int>(i)) != 0) continue;
    for (int j = 0; j < tops[i]->count(); ++j) {
      tops[i]->mutable_cpu_diff()[j] = Draw(random, -1, 1);
    }
  }
}

// A loss has no second top that could take a gradient, nor has pooling's mask one.
void DropTopGradients(const std::string& type, const Blobs& tops, ::caffe::Layer<float>& layer) {
  for (size_t i = 1; i < tops.size(); ++i) {
    if (layer.loss(0) == 0 && type != "Pooling") continue;
    ::caffe::caffe_set(tops[i]->count(), 0.0F, tops[i]->mutable_cpu_diff());
  }
}

// Runs the layer forward and, if a gradient is wanted, backward. The result is the layer with
// blobs: the bottoms, the parameters before, the tops, the parameters after.
::caffe::LayerParameter Run(const GoldenCase& golden, Random& random) {
  ::caffe::LayerParameter parameter = Parameter(golden);
  SharedBlobs bottoms;
  std::vector<bool> propagate_down;
  bool backward = false;
  for (const GoldenBottom& bottom : golden.bottoms) {
    bottoms.push_back(boost::make_shared<Blob>(bottom.shape));
    Fill(bottom, random, bottoms.back()->mutable_cpu_data());
    propagate_down.push_back(bottom.gradient);
    backward |= bottom.gradient;
  }
  SharedBlobs tops;
  for (int i = 0; i < parameter.top_size(); ++i) tops.push_back(boost::make_shared<Blob>());

  const auto layer = ::caffe::LayerRegistry<float>::CreateLayer(parameter);
  layer->SetUp(Pointers(bottoms), Pointers(tops));
  FillParameters(golden, layer->blobs(), random);
  SharedBlobs before;
  for (const auto& blob : layer->blobs()) {
    before.push_back(boost::make_shared<Blob>());
    before.back()->CopyFrom(*blob, /*copy_diff=*/false, /*reshape=*/true);
    layer->set_param_propagate_down(static_cast<int>(before.size()) - 1, true);
  }
  layer->Forward(Pointers(bottoms), Pointers(tops));
  if (backward || !before.empty()) {
    FillTopGradients(*layer, Pointers(tops), random);
    DropTopGradients(golden.type, Pointers(tops), *layer);
    layer->Backward(Pointers(tops), propagate_down, Pointers(bottoms));
  }
  Save(bottoms, parameter);
  Save(before, parameter);
  Save(tops, parameter);
  Save(layer->blobs(), parameter);
  return parameter;
}

void WriteLayers(const std::vector<GoldenCase>& cases, const std::string& folder) {
  std::filesystem::create_directories(folder);
  std::map<std::string, ::caffe::NetParameter> files;
  for (const GoldenCase& golden : cases) {
    LOG(INFO) << golden.type << ": " << golden.setting;
    // A seed of its own, so that a new case leaves the others as they are.
    Random random(DeriveSeed(DeriveSeed(1, golden.type), golden.setting));
    ::caffe::NetParameter& file = files[golden.type];
    file.set_name(golden.type);
    *file.add_layer() = Run(golden, random);
  }
  for (const auto& [type, file] : files) WriteMessage(file, folder + type + ".binaryproto");
}

}  // namespace

void MakeLayerFiles(const std::string& directory) {
  WriteLayers(GoldenCases(), directory + "/layers/");
  ::caffe::Caffe::set_random_seed(37);
  WriteLayers(RandomGoldenCases(), directory + "/random/");
}

}  // namespace poseidon
