// Caffe's .caffemodel files: a net with the values of its blobs.
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/shape.h"
#include "core/atomic_file.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Whether a model or solverstate of that name is written in Caffe's HDF5 format, instead of binary
// Protobuf, and a solverstate read.
bool IsHdf5Path(const std::string& path);

// The shape of a stored blob, also where an older file has num, channels, height and width instead.
Shape BlobProtoShape(const caffe::BlobProto& blob);

// Whether the blob is of that shape. One of an older file, which has every blob in 4 axes, may have
// extents of 1 before it.
bool HasShape(const caffe::BlobProto& blob, const Shape& shape);

// A stored blob from values; and back, from `data` or `double_data`. ToValues throws DataError if
// their number is not the shape's.
caffe::BlobProto ToBlobProto(const Shape& shape, std::span<const float> values);
std::vector<float> ToValues(const caffe::BlobProto& blob);

// Protobuf's own limit for a message.
constexpr int kMostBinaryBytes = std::numeric_limits<int>::max();

// Writes a binary message; the file is there whole or not at all. Throws Error.
void WriteBinaryFile(const std::string& path, const google::protobuf::Message& message);
// The same under a temporary name, to be placed.
PreparedFile PrepareBinaryFile(const std::string& path, const google::protobuf::Message& message);

// Reads a binary message of any size up to Protobuf's 2 GiB. Throws DataError, and Error of
// kFailure where it can't be read now, as it may be another time.
void ReadBinaryFile(const std::string& path, google::protobuf::Message& message);

// Whether a binary file is a model with layers; whether it is a solver's state. Nearly any file can
// be read as some message, so these are for whoever could not use it as what it was given for.
// Throw Error of kFailure as ReadBinaryFile does.
bool IsBinaryModel(const std::string& path);
bool IsBinarySolverState(const std::string& path);

// The values of a net's parameters: values[l][b] is blob b of layer l of the description. A shared
// blob's are its owner's (ParameterDescription::owner); values[l][b] of the others is not looked
// at.
using NetValues = std::vector<std::vector<std::vector<float>>>;

// Writes the net's layers with their values; shared ones in every layer that uses them, as Caffe.
void WriteCaffemodel(const std::string& path, const NetDescription& net, const NetValues& values);
// The same under a temporary name, to be placed.
PreparedFile PrepareCaffemodel(const std::string& path, const NetDescription& net,
                               const NetValues& values);

// How many values each blob of a binary model has, in the layers' order, what layers share once: as
// the solver keeps something for each. Throws as ReadBinaryFile does.
std::vector<int64_t> LearnableCounts(const std::string& path);

// Layers by name: those with parameters that a file had values for, be it in other layers that
// share them, those whose values it lacks, and those with values in the file that the net lacks.
struct CopiedLayers {
  std::vector<std::string> copied;
  std::vector<std::string> kept;
  std::vector<std::string> passed_over;
  // What has the file's values now: layer and blob of NetValues. With shared ones an owner may have
  // them that is kept, as the file lacks another of its blobs.
  std::set<std::pair<size_t, size_t>> places;
};
// "copied conv1, conv2; not in the file: fc; not in the net: fc8".
std::string ToString(const CopiedLayers& layers);

// Sets values from the file's layers of the same name, as Caffe does: layers that the file lacks
// keep theirs, layers that the net lacks are passed over. Of several values of a shared blob those
// of the file's last layer hold, in HDF5 of the last one by its name. HDF5 is known by the name or
// by the file's first bytes. A file of an older format is upgraded (caffe_adapter/net/upgrade.h).
// Throws DataError if a layer's number of blobs or a blob's shape differs, and for a file none of
// whose layers with blobs the net has: the model of another net. Throws Error of kFailure as
// ReadBinaryFile does.
CopiedLayers ReadCaffemodel(const std::string& path, const NetDescription& net, NetValues& values);

}  // namespace poseidon
