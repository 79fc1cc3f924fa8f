#include "worker/engine/training_inputs.h"

#include <glog/logging.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "caffe_adapter/data/fingerprint.h"
#include "caffe_adapter/files/caffemodel.h"
#include "core/error.h"

namespace poseidon {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Fields of caffe.proto, in whichever message they are, that say where something is found and how
// it is read or computed, but not what comes of it.
constexpr std::array<std::string_view, 13> kOfTheMachine = {
    "source", "root_folder", "mean_file",  "file_name",  "backend", "prefetch", "cache_images",
    "module", "engine",      "debug_info", "batch_size", "include", "exclude"};

void ForgetMachine(Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (std::ranges::find(kOfTheMachine, field->name()) != kOfTheMachine.end()) {
      reflection.ClearField(&message, field);
    } else if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      continue;
    } else if (field->is_repeated()) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        ForgetMachine(*reflection.MutableRepeatedMessage(&message, field, i));
      }
    } else {
      ForgetMachine(*reflection.MutableMessage(&message, field));
    }
  }
}

// Of means and matrices by which layers compute: where they lie has no part in a net's hash, but
// what is in them.
std::vector<std::string> ValueFilesOf(const LayerDescription& layer) {
  std::vector<std::string> files;
  const caffe::LayerParameter& parameter = layer.parameter;
  if (parameter.transform_param().has_mean_file()) {
    files.push_back(parameter.transform_param().mean_file());
  }
  constexpr size_t kScoresAndLabels = 2;  // else the matrix comes from a layer
  if (parameter.infogain_loss_param().has_source() && layer.bottoms.size() == kScoresAndLabels) {
    files.push_back(parameter.infogain_loss_param().source());
  }
  return files;
}

uint64_t ExtendByValues(uint64_t hash, const std::vector<float>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return ExtendFingerprint(hash, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string Serialize(const Message& message) {
  std::string bytes;
  google::protobuf::io::StringOutputStream stream(&bytes);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return bytes;
}

// By layer of the net: whether the engine's model lacks it though it has parameters.
std::vector<bool> LayersBesideModel(const Engine& engine) {
  std::vector<bool> beside;
  int next = 0;
  for (const LayerDescription& layer : engine.net()->layers) {
    const bool trained =
        next < engine.model().layers_size() && engine.model().layers(next).name() == layer.name();
    if (trained) ++next;
    beside.push_back(!trained && layer.owned_floats() > 0);
  }
  return beside;
}

// Returns whether all files can be read now and fit. Whoever needs them, at the job's start, says
// why not when it sets its values.
bool TryReadWeights(const std::vector<std::string>& weights, const NetDescription& net,
                    NetValues& values) {
  try {
    for (const std::string& path : weights) ReadCaffemodel(path, net, values);
  } catch (const Error&) {
    return false;
  }
  return true;
}

std::optional<uint64_t> HashOfUntrained(const Engine& engine,
                                        const std::vector<std::string>& weights,
                                        const std::optional<FoundSnapshot>& from) {
  if (engine.net() == nullptr) return std::nullopt;
  const std::vector<bool> beside = LayersBesideModel(engine);
  if (std::ranges::find(beside, true) == beside.end()) return std::nullopt;
  NetValues values = engine.UntrainedValues();
  if (from) {
    ReadSnapshotValues(*from, *engine.net(), values);
  } else if (!TryReadWeights(weights, *engine.net(), values)) {
    return std::nullopt;
  }
  uint64_t hash = 0;
  for (size_t l = 0; l < beside.size(); ++l) {
    if (!beside[l]) continue;
    for (const std::vector<float>& blob : values[l]) hash = ExtendByValues(hash, blob);
  }
  return hash;
}

}  // namespace

uint64_t HashOfNet(const NetDescription& net) {
  uint64_t hash = 0;
  for (const LayerDescription& layer : net.layers) {
    caffe::LayerParameter parameter = layer.parameter;
    parameter.DiscardUnknownFields();
    ForgetMachine(parameter);
    // What it reads the data from is in there.
    if (layer.bottoms.empty() && parameter.has_python_param()) {
      parameter.mutable_python_param()->clear_param_str();
    }
    hash = ExtendFingerprint(hash, Serialize(parameter));
    for (const std::string& file : ValueFilesOf(layer)) {
      caffe::BlobProto blob;
      ReadBinaryFile(file, blob);
      hash = ExtendByValues(hash, ToValues(blob));
    }
  }
  return hash;
}

wire::TrainingInputs InputsOf(const Engine& engine, const std::vector<std::string>& weights,
                              const std::optional<FoundSnapshot>& from) {
  wire::TrainingInputs inputs = engine.inputs();
  if (engine.net() != nullptr) inputs.set_net(HashOfNet(*engine.net()));
  if (from) {
    inputs.set_first_iteration(from->state.iteration);
    inputs.set_snapshot(from->path);
  }
  if (const auto hash = HashOfUntrained(engine, weights, from)) inputs.set_untrained(*hash);
  return inputs;
}

void CheckSameData(const std::vector<wire::TrainingData>& before,
                   const std::vector<wire::TrainingData>& now) {
  CHECK_EQ(now.size(), before.size());
  for (size_t i = 0; i < now.size(); ++i) {
    const bool as_many = now[i].records() == before[i].records();
    if (as_many && now[i].fingerprint() == before[i].fingerprint()) continue;
    throw DataError("layer \"" + now[i].layer() + "\": the data has changed since the job began: " +
                    (as_many ? "as many records, but not the same"
                             : std::to_string(now[i].records()) + " records, it had " +
                                   std::to_string(before[i].records())) +
                    "; start the job again");
  }
}

}  // namespace poseidon
