#include "caffe_adapter/files/caffemodel.h"

#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>

#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/files/hdf5_writer.h"
#include "caffe_adapter/net/upgrade.h"
#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/text/listed.h"

namespace poseidon {
namespace {

// Whether the blob is of an old file, which has every blob in 4 axes, the first ones 1. Of a blob
// without axes new files, too, have no shape.
bool HasFourNumbers(const caffe::BlobProto& blob) {
  return blob.has_num() || blob.has_channels() || blob.has_height() || blob.has_width();
}

using Places = std::set<std::pair<size_t, size_t>>;

// Where the values of a layer's blob are in NetValues.
Places::value_type Place(const NetDescription& net, size_t layer, size_t blob) {
  const std::optional<ParameterOwner>& owner = net.layers[layer].parameters[blob].owner;
  if (!owner) return {layer, blob};
  return {static_cast<size_t>(owner->layer), static_cast<size_t>(owner->blob)};
}

// Whether a layer has values at `places`, and lacks none that it owns: what it shares may be
// another layer's to lack.
bool HasValues(const NetDescription& net, size_t layer, const Places& places) {
  bool has_some = false;
  const std::vector<ParameterDescription>& parameters = net.layers[layer].parameters;
  for (size_t b = 0; b < parameters.size(); ++b) {
    const bool has = places.contains(Place(net, layer, b));
    if (!has && !parameters[b].owner) return false;
    has_some |= has;
  }
  return has_some;
}

std::vector<float> BlobValues(const caffe::BlobProto& blob, const std::string& where) {
  try {
    return ToValues(blob);
  } catch (const DataError& error) {
    throw DataError(where + ": " + error.what());
  }
}

// In Caffe's HDF5 files a blob is data/LAYER/NUMBER, and one that is shared is its owner's only.
std::string DatasetOf(const LayerDescription& layer, size_t blob) {
  return "data/" + layer.name() + "/" + std::to_string(blob);
}

PreparedFile PrepareHdf5Model(const std::string& path, const NetDescription& net,
                              const NetValues& values) {
  Hdf5Writer file(path);
  file.AddGroup("data");
  for (size_t l = 0; l < net.layers.size(); ++l) {
    for (size_t b = 0; b < net.layers[l].parameters.size(); ++b) {
      const ParameterDescription& parameter = net.layers[l].parameters[b];
      if (parameter.owner) continue;
      file.AddFloats(DatasetOf(net.layers[l], b), parameter.shape, values[l][b]);
    }
  }
  return file.Prepare();
}

// Whether the file's group data/NAME is of layers of `net`. A slash in a name parts groups.
bool IsGroupOf(const NetDescription& net, const std::string& name) {
  return std::ranges::any_of(net.layers, [&](const LayerDescription& layer) {
    return layer.name() == name || layer.name().starts_with(name + "/");
  });
}

// A descriptor of a file that is there to be read.
int OpenBinaryFile(const std::string& path) {
  CheckRegularFile(path, ExitCode::kDataError);
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) ThrowReadError(path, errno, ExitCode::kDataError);
  return descriptor;
}

// Whether a model is HDF5's, by its first bytes: whatever its name is, Caffe looks at the content.
// What can't be read now is not guessed: that is Error of kFailure.
bool BeginsAsHdf5(const std::string& path) {
  constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
  std::array<char, kSignature.size()> begin{};
  const int descriptor = OpenBinaryFile(path);
  const ssize_t bytes = pread(descriptor, begin.data(), begin.size(), 0);
  const int error = errno;
  close(descriptor);
  if (bytes < 0) ThrowReadError(path, error, ExitCode::kDataError);
  return std::string_view(begin.data(), static_cast<size_t>(bytes)) == kSignature;
}

// Whether the file has that blob. A group may have its name: that of a layer `block/1`, where
// `block` is a layer, too.
bool HasBlob(const Hdf5File& file, const std::string& dataset) {
  return file.Has(dataset) && file.NamesIn(dataset).empty();
}

// Whether the file has a group for the layer. One of other groups only is on the way to layers with
// slashes in their names.
bool HasGroupOf(const Hdf5File& file, const LayerDescription& layer) {
  const std::string group = "data/" + layer.name();
  const std::vector<std::string> names = file.NamesIn(group);
  if (names.empty()) return file.Has(group);
  return std::ranges::any_of(names, [&](const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos &&
           HasBlob(file, group + "/" + name);
  });
}

// The layer with the blobs that the file's group has for it, also with more than are wanted. A
// shared blob that the group lacks is one without a shape; other layers have it, or none.
caffe::LayerParameter ReadHdf5Layer(const Hdf5File& file, const LayerDescription& layer) {
  caffe::LayerParameter stored;
  stored.set_name(layer.name());
  for (size_t b = 0;; ++b) {
    const std::string dataset = DatasetOf(layer, b);
    if (HasBlob(file, dataset)) {
      *stored.add_blobs() = ToBlobProto(file.ShapeOf(dataset), file.Read(dataset));
    } else if (b >= layer.parameters.size()) {
      return stored;
    } else if (layer.parameters[b].owner) {
      stored.add_blobs();
    } else {
      throw DataError(file.path() + ": layer \"" + layer.name() + "\": lacks blob " +
                      std::to_string(b) + ", which this net's layer owns");
    }
  }
}

bool HasShapedBlob(const caffe::LayerParameter& layer) {
  return std::ranges::any_of(layer.blobs(), [](const auto& blob) { return blob.has_shape(); });
}

[[noreturn]] void RefuseSolverState(const std::string& path) {
  throw DataError(path +
                  ": is a solver state, and no model; give the .caffemodel that was written with "
                  "it, or, to go on with a training, give it to `poseidon run` as --snapshot");
}

// The layers of `net` with the blobs that the file has for them, in the order of their names, which
// is that of Caffe's reading, and others that have some.
caffe::NetParameter ReadHdf5(const std::string& path, const NetDescription& net) {
  const Hdf5File file(path);
  if (file.Has("iter") && !file.Has("data")) RefuseSolverState(path);
  std::map<std::string, const LayerDescription*> layers;
  for (const LayerDescription& layer : net.layers) layers[layer.name()] = &layer;
  caffe::NetParameter model;
  for (const auto& [name, layer] : layers) {
    if (!HasGroupOf(file, *layer)) continue;
    // In Caffe's files a layer that owns nothing has a group, too, without blobs.
    caffe::LayerParameter stored = ReadHdf5Layer(file, *layer);
    if (HasShapedBlob(stored)) *model.add_layer() = std::move(stored);
  }
  for (const std::string& name : file.NamesIn("data")) {
    // Caffe writes a group for layers without blobs, too.
    if (IsGroupOf(net, name) || file.NamesIn("data/" + name).empty()) continue;
    caffe::LayerParameter& other = *model.add_layer();
    other.set_name(name);
    other.add_blobs();  // that it has some is enough
  }
  return model;
}

caffe::NetParameter ReadUpgraded(const std::string& path) {
  caffe::NetParameter model;
  try {
    ReadBinaryFile(path, model);
  } catch (const DataError&) {
    if (IsBinarySolverState(path)) RefuseSolverState(path);
    throw;
  }
  UpgradeNet(model, [&path](const std::string&) { return Location{path, 0, 0}; });
  return model;
}

// What a file with the message is, by how its name mostly ends.
std::string KindOfFile(const google::protobuf::Message& message) {
  const google::protobuf::Descriptor* type = message.GetDescriptor();
  if (type == caffe::NetParameter::descriptor()) return ".caffemodel";
  if (type == caffe::SolverState::descriptor()) return ".solverstate";
  return type == caffe::BlobProto::descriptor() ? ".binaryproto" : type->name();
}

// Whether the file has such a message.
bool Holds(const std::string& path, google::protobuf::Message& message) {
  try {
    ReadBinaryFile(path, message);
  } catch (const DataError&) {
    return false;
  }
  return true;
}

[[noreturn]] void RefuseForeignModel(const std::string& path, const NetDescription& net,
                                     const caffe::NetParameter& model) {
  std::string wanted;
  for (const LayerDescription& layer : net.layers) {
    if (!layer.parameters.empty()) wanted += (wanted.empty() ? "" : ", ") + layer.name();
  }
  std::string stored;
  for (const caffe::LayerParameter& layer : model.layer()) {
    if (layer.blobs_size() > 0) stored += (stored.empty() ? "" : ", ") + layer.name();
  }
  const std::string net_wants = ", and the net \"" + net.name + "\" wants them for " + wanted;
  if (stored.empty()) {
    throw DataError(path + ": has values for no layer" + net_wants +
                    ": it was cut off, or was written without values");
  }
  throw DataError(path + ": is the model of another net: it has values for " + stored + net_wants);
}

}  // namespace

bool IsHdf5Path(const std::string& path) { return path.ends_with(".h5"); }

Shape BlobProtoShape(const caffe::BlobProto& blob) {
  if (HasFourNumbers(blob)) {
    return {blob.num(), blob.channels(), blob.height(), blob.width()};
  }
  return {blob.shape().dim().begin(), blob.shape().dim().end()};
}

bool HasShape(const caffe::BlobProto& blob, const Shape& shape) {
  Shape expected = shape;
  if (HasFourNumbers(blob) && shape.size() < 4)
    expected.insert(expected.begin(), 4 - shape.size(), 1);
  return BlobProtoShape(blob) == expected;
}

caffe::BlobProto ToBlobProto(const Shape& shape, std::span<const float> values) {
  caffe::BlobProto blob;
  blob.mutable_shape()->mutable_dim()->Add(shape.begin(), shape.end());
  blob.mutable_data()->Add(values.begin(), values.end());
  return blob;
}

std::vector<float> ToValues(const caffe::BlobProto& blob) {
  std::vector<float> values(blob.data().begin(), blob.data().end());
  if (values.empty()) values.assign(blob.double_data().begin(), blob.double_data().end());
  const Shape shape = BlobProtoShape(blob);
  const std::optional<int64_t> count = CheckedCount(shape);
  if (static_cast<int64_t>(values.size()) != count) {
    throw DataError(
        "a blob of " + ToString(shape) + " has " + std::to_string(values.size()) +
        " values; expected " +
        (count ? std::to_string(*count) : "extents from 0 and at most 2^31 - 1 values"));
  }
  return values;
}

PreparedFile PrepareBinaryFile(const std::string& path, const google::protobuf::Message& message) {
  if (message.ByteSizeLong() > static_cast<size_t>(kMostBinaryBytes)) {
    throw DataError("can't write " + path + ": Protobuf's limit for a file is 2 GiB");
  }
  return PreparedFile(path, message.SerializeAsString());
}

void WriteBinaryFile(const std::string& path, const google::protobuf::Message& message) {
  PrepareBinaryFile(path, message).Place();
}

void ReadBinaryFile(const std::string& path, google::protobuf::Message& message) {
  google::protobuf::io::FileInputStream stream(OpenBinaryFile(path));
  stream.SetCloseOnDelete(true);
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(kMostBinaryBytes);
  const bool is_whole = message.ParseFromCodedStream(&coded) && coded.ConsumedEntireMessage();
  // What could be read until then may be a message, too.
  if (stream.GetErrno() != 0) ThrowReadError(path, stream.GetErrno(), ExitCode::kDataError);
  if (!is_whole) {
    throw DataError(path + ": is no " + KindOfFile(message) + " or is truncated or corrupt");
  }
}

bool IsBinaryModel(const std::string& path) {
  caffe::NetParameter model;
  return Holds(path, model) && model.layer_size() + model.layers_size() > 0;
}

bool IsBinarySolverState(const std::string& path) {
  caffe::SolverState state;
  return Holds(path, state) && state.has_iter();
}

std::vector<int64_t> LearnableCounts(const std::string& path) {
  const caffe::NetParameter model = ReadUpgraded(path);
  std::vector<int64_t> counts;
  std::set<std::string> shared;
  for (const caffe::LayerParameter& layer : model.layer()) {
    for (int b = 0; b < layer.blobs_size(); ++b) {
      const std::string name = b < layer.param_size() ? layer.param(b).name() : "";
      if (!name.empty() && !shared.insert(name).second) continue;
      const std::string where = path + ": layer \"" + layer.name() + "\": ";
      counts.push_back(std::ssize(BlobValues(layer.blobs(b), where)));
    }
  }
  return counts;
}

PreparedFile PrepareCaffemodel(const std::string& path, const NetDescription& net,
                               const NetValues& values) {
  if (IsHdf5Path(path)) return PrepareHdf5Model(path, net, values);
  caffe::NetParameter model;
  model.set_name(net.name);
  for (size_t l = 0; l < net.layers.size(); ++l) {
    const LayerDescription& layer = net.layers[l];
    caffe::LayerParameter& written = *model.add_layer();
    written = layer.parameter;
    for (size_t b = 0; b < layer.parameters.size(); ++b) {
      const auto [owner, blob] = Place(net, l, b);
      *written.add_blobs() = ToBlobProto(layer.parameters[b].shape, values[owner][blob]);
    }
  }
  return PrepareBinaryFile(path, model);
}

void WriteCaffemodel(const std::string& path, const NetDescription& net, const NetValues& values) {
  PrepareCaffemodel(path, net, values).Place();
}

std::string ToString(const CopiedLayers& layers) {
  std::string text = "copied " + Listed(layers.copied);
  if (!layers.kept.empty()) text += "; not in the file: " + Listed(layers.kept);
  if (!layers.passed_over.empty()) text += "; not in the net: " + Listed(layers.passed_over);
  return text;
}

CopiedLayers ReadCaffemodel(const std::string& path, const NetDescription& net, NetValues& values) {
  // By the name, too: of a cut-off .h5 file the first bytes may be missing.
  const bool is_hdf5 = IsHdf5Path(path) || BeginsAsHdf5(path);
  const caffe::NetParameter model = is_hdf5 ? ReadHdf5(path, net) : ReadUpgraded(path);
  std::map<std::string, const caffe::LayerParameter*> layers;
  for (const caffe::LayerParameter& layer : model.layer()) {
    // The first of a name could be another layer without blobs.
    if (layer.blobs_size() > 0 || !layers.contains(layer.name())) layers[layer.name()] = &layer;
  }
  CopiedLayers result;
  // In the file's order: of several values of a shared blob the last ones hold, as in Caffe.
  for (const caffe::LayerParameter& stored : model.layer()) {
    const std::optional<int> found = FindLayer(net, stored.name());
    if (!found || layers.at(stored.name()) != &stored) continue;
    const auto l = static_cast<size_t>(*found);
    const LayerDescription& layer = net.layers[l];
    const std::string where = path + ": layer \"" + layer.name() + "\": ";
    if (stored.blobs_size() != static_cast<int>(layer.parameters.size())) {
      throw DataError(where + "has " + std::to_string(stored.blobs_size()) +
                      " blobs; the net's has " + std::to_string(layer.parameters.size()));
    }
    for (int b = 0; b < stored.blobs_size(); ++b) {
      if (is_hdf5 && !stored.blobs(b).has_shape()) continue;  // a shared one of other layers
      if (!HasShape(stored.blobs(b), layer.parameters[b].shape)) {
        throw DataError(where + "blob " + std::to_string(b) + " is " +
                        ToString(BlobProtoShape(stored.blobs(b))) + "; the net's is " +
                        ToString(layer.parameters[b].shape));
      }
      const auto [owner, blob] = Place(net, l, b);
      result.places.emplace(owner, blob);
      values[owner][blob] = BlobValues(stored.blobs(b), where + "blob " + std::to_string(b));
    }
  }
  // Layers may have theirs from other ones, which share them.
  for (size_t l = 0; l < net.layers.size(); ++l) {
    if (net.layers[l].parameters.empty()) continue;
    (HasValues(net, l, result.places) ? result.copied : result.kept)
        .push_back(net.layers[l].name());
  }
  if (result.copied.empty() && !result.kept.empty()) RefuseForeignModel(path, net, model);
  for (const auto& [name, layer] : layers) {
    if (layer->blobs_size() > 0 && !FindLayer(net, name)) result.passed_over.push_back(name);
  }
  return result;
}

}  // namespace poseidon
