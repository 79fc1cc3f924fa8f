#include "caffe_adapter/caffemodel.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>

#include "core/atomic_file.h"
#include "core/error.h"

namespace poseidon {
namespace {

// Old files have every blob in 4 axes, the first ones 1.
bool SameShape(const caffe::BlobProto& stored, const Shape& shape) {
  Shape expected = shape;
  if (!stored.has_shape() && shape.size() < 4)
    expected.insert(expected.begin(), 4 - shape.size(), 1);
  return BlobProtoShape(stored) == expected;
}

}  // namespace

Shape BlobProtoShape(const caffe::BlobProto& blob) {
  if (blob.has_num() || blob.has_channels() || blob.has_height() || blob.has_width()) {
    return {blob.num(), blob.channels(), blob.height(), blob.width()};
  }
  return {blob.shape().dim().begin(), blob.shape().dim().end()};
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
  if (static_cast<int64_t>(values.size()) != Count(shape)) {
    throw DataError("a blob of " + ToString(shape) + " has " + std::to_string(values.size()) +
                    " values; expected " + std::to_string(Count(shape)));
  }
  return values;
}

void WriteBinaryFile(const std::string& path, const google::protobuf::Message& message) {
  if (message.ByteSizeLong() > static_cast<size_t>(std::numeric_limits<int>::max())) {
    throw DataError("can't write " + path + ": Protobuf's limit for a file is 2 GiB");
  }
  WriteFileAtomically(path, message.SerializeAsString());
}

void ReadBinaryFile(const std::string& path, google::protobuf::Message& message) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError("can't read " + path + ": " + std::strerror(errno));
  google::protobuf::io::IstreamInputStream stream(&file);
  google::protobuf::io::CodedInputStream coded(&stream);
  coded.SetTotalBytesLimit(std::numeric_limits<int>::max());
  if (!message.ParseFromCodedStream(&coded) || !coded.ConsumedEntireMessage()) {
    throw DataError(path + ": is no " + message.GetDescriptor()->name() +
                    " or is truncated or corrupt");
  }
}

void WriteCaffemodel(const std::string& path, const NetDescription& net, const NetValues& values) {
  caffe::NetParameter model;
  model.set_name(net.name);
  for (size_t l = 0; l < net.layers.size(); ++l) {
    const LayerDescription& layer = net.layers[l];
    caffe::LayerParameter& written = *model.add_layer();
    written = layer.parameter;
    for (size_t b = 0; b < layer.parameters.size(); ++b) {
      *written.add_blobs() = ToBlobProto(layer.parameters[b].shape, values[l][b]);
    }
  }
  WriteBinaryFile(path, model);
}

void ReadCaffemodel(const std::string& path, const NetDescription& net, NetValues& values) {
  caffe::NetParameter model;
  ReadBinaryFile(path, model);
  std::map<std::string, const caffe::LayerParameter*> layers;
  for (const caffe::LayerParameter& layer : model.layer()) layers[layer.name()] = &layer;
  for (size_t l = 0; l < net.layers.size(); ++l) {
    const LayerDescription& layer = net.layers[l];
    const auto found = layers.find(layer.name());
    if (found == layers.end()) continue;
    const caffe::LayerParameter& stored = *found->second;
    const std::string where = path + ": layer \"" + layer.name() + "\": ";
    if (stored.blobs_size() != static_cast<int>(layer.parameters.size())) {
      throw DataError(where + "has " + std::to_string(stored.blobs_size()) +
                      " blobs; the net's has " + std::to_string(layer.parameters.size()));
    }
    for (int b = 0; b < stored.blobs_size(); ++b) {
      if (!SameShape(stored.blobs(b), layer.parameters[b].shape)) {
        throw DataError(where + "blob " + std::to_string(b) + " is " +
                        ToString(BlobProtoShape(stored.blobs(b))) + "; the net's is " +
                        ToString(layer.parameters[b].shape));
      }
      values[l][b] = ToValues(stored.blobs(b));
    }
  }
}

}  // namespace poseidon
