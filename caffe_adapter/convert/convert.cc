// MNIST and CIFAR-10 as published.
#include "caffe_adapter/convert/convert.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/data/mean_image.h"
#include "core/error.h"
#include "core/files/regular_file.h"

namespace poseidon {
namespace {

DatasetWriter::Existing ExistingOf(const ConvertOptions& options) {
  return options.replace ? DatasetWriter::Existing::kReplace : DatasetWriter::Existing::kRefuse;
}

caffe::Datum MakeDatum(const Shape& shape, const std::string& pixels, int label) {
  caffe::Datum datum;
  datum.set_channels(static_cast<int>(shape[0]));
  datum.set_height(static_cast<int>(shape[1]));
  datum.set_width(static_cast<int>(shape[2]));
  datum.set_data(pixels);
  datum.set_label(label);
  return datum;
}

// A binary file that is read from front to back.
class BinaryFile {
 public:
  explicit BinaryFile(const std::string& path) : path_(path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored) && std::filesystem::exists(path + ".gz", ignored)) {
      throw DataError("can't read " + path + ", but there is " + path + ".gz: gunzip it first");
    }
    CheckRegularFile(path, ExitCode::kDataError);
    stream_.open(path, std::ios::binary);
    if (!stream_) throw DataError("can't read " + path + ": " + std::strerror(errno));
  }

  std::string Read(size_t bytes) {
    std::string buffer(bytes, '\0');
    if (!stream_.read(buffer.data(), static_cast<std::streamsize>(bytes))) {
      throw DataError(path_ + ": truncated after " + std::to_string(read_ + stream_.gcount()) +
                      " bytes; expected " + std::to_string(bytes) + " from byte " +
                      std::to_string(read_));
    }
    read_ += static_cast<int64_t>(bytes);
    return buffer;
  }

  uint32_t ReadBigEndian() {
    const std::string bytes = Read(4);
    uint32_t value = 0;
    for (const char byte : bytes) value = value << 8 | static_cast<uint8_t>(byte);
    return value;
  }

  bool AtEnd() { return stream_.peek() == std::ifstream::traits_type::eof(); }

  void ExpectEnd() {
    if (!AtEnd()) {
      throw DataError(path_ + ": longer than its header says, " + std::to_string(read_) + " bytes");
    }
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::ifstream stream_;
  int64_t read_ = 0;
};

// The idx format: two zero bytes, the type of the values (8: unsigned byte), the number of axes,
// the extents as 32-bit big-endian numbers, the values.
Shape ReadIdxHeader(BinaryFile& file, uint32_t axes) {
  constexpr uint32_t kUnsignedByte = 8;
  const uint32_t expected = kUnsignedByte << 8 | axes;
  const uint32_t magic = file.ReadBigEndian();
  if (magic != expected) {
    throw DataError(file.path() + ": starts with " + std::to_string(magic) +
                    "; an idx file of unsigned bytes with " + std::to_string(axes) +
                    " axes starts with " + std::to_string(expected));
  }
  Shape shape;
  for (uint32_t i = 0; i < axes; ++i) shape.push_back(file.ReadBigEndian());
  return shape;
}

WrittenDatabase ConvertMnistSet(const ConvertOptions& options, const std::string& prefix,
                                const std::string& out) {
  BinaryFile images(options.source + "/" + prefix + "-images-idx3-ubyte");
  BinaryFile labels(options.source + "/" + prefix + "-labels-idx1-ubyte");
  const Shape extents = ReadIdxHeader(images, 3);
  const Shape label_extents = ReadIdxHeader(labels, 1);
  if (extents[0] != label_extents[0]) {
    throw DataError(labels.path() + ": has " + std::to_string(label_extents[0]) + " labels for " +
                    std::to_string(extents[0]) + " images in " + images.path());
  }
  if (extents[0] == 0) throw DataError(images.path() + ": has no images");
  const Shape shape = {1, extents[1], extents[2]};
  DatasetWriter writer(options.out + "/" + out, ExistingOf(options));
  for (int64_t i = 0; i < extents[0]; ++i) {
    const std::string pixels = images.Read(static_cast<size_t>(Count(shape)));
    writer.Append(MakeDatum(shape, pixels, static_cast<uint8_t>(labels.Read(1)[0])));
  }
  images.ExpectEnd();
  labels.ExpectEnd();
  writer.Finish();
  return {options.out + "/" + out, writer.size(), shape};
}

const Shape kCifarShape = {3, 32, 32};

// Records of a label byte and the pixels, channel by channel. `mean` may be null.
WrittenDatabase ConvertCifarSet(const ConvertOptions& options,
                                const std::vector<std::string>& files, const std::string& out,
                                MeanImage* mean) {
  constexpr int kClasses = 10;
  DatasetWriter writer(options.out + "/" + out, ExistingOf(options));
  for (const std::string& name : files) {
    BinaryFile file(options.source + "/" + name);
    while (!file.AtEnd()) {
      const int label = static_cast<uint8_t>(file.Read(1)[0]);
      if (label >= kClasses) {
        throw DataError(file.path() + ": label " + std::to_string(label) + " before record " +
                        std::to_string(writer.size()) +
                        "; expected 0 to 9 (is this CIFAR-10's "
                        "binary version?)");
      }
      const std::string pixels = file.Read(static_cast<size_t>(Count(kCifarShape)));
      const caffe::Datum datum = MakeDatum(kCifarShape, pixels, label);
      if (mean) mean->Add(datum);
      writer.Append(datum);
    }
  }
  if (writer.size() == 0) {
    throw DataError(options.source + "/" + files.front() +
                    (files.size() > 1 ? " to " + files.back() + " have" : " has") + " no images");
  }
  writer.Finish();
  return {options.out + "/" + out, writer.size(), kCifarShape};
}

}  // namespace

ConvertResult ConvertMnist(const ConvertOptions& options) {
  ConvertResult result;
  result.databases.push_back(ConvertMnistSet(options, "train", "train_lmdb"));
  result.databases.push_back(ConvertMnistSet(options, "t10k", "test_lmdb"));
  return result;
}

ConvertResult ConvertCifar10(const ConvertOptions& options) {
  MeanImage mean(kCifarShape);
  const std::vector<std::string> train = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin"};
  ConvertResult result;
  result.databases = {ConvertCifarSet(options, train, "train_lmdb", &mean),
                      ConvertCifarSet(options, {"test_batch.bin"}, "test_lmdb", nullptr)};
  const std::string mean_file = options.out + "/mean.binaryproto";
  mean.Write(mean_file);
  result.other_files = {mean_file};
  return result;
}

}  // namespace poseidon
