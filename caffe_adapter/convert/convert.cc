// MNIST and CIFAR-10 as published.
#include "caffe_adapter/convert/convert.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/convert/record_count.h"
#include "caffe_adapter/data/mean_image.h"
#include "core/atomic_file.h"
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

// Both databases of a conversion are begun before the first is filled, so that what hinders the
// second is not said late; and both are on disk before the first gets its name, so that a
// conversion that has failed can be repeated; but for one that is killed between the two names.
class TrainAndTest {
 public:
  explicit TrainAndTest(const ConvertOptions& options)
      : train_path_(options.out + "/train_lmdb"),
        test_path_(options.out + "/test_lmdb"),
        train_(train_path_, ExistingOf(options)),
        test_(test_path_, ExistingOf(options)) {}

  DatasetWriter& train() { return train_; }
  DatasetWriter& test() { return test_; }

  std::vector<WrittenDatabase> Finish(const Shape& train_shape, const Shape& test_shape) {
    train_.Finish();
    test_.Finish();
    return {{train_path_, train_.size(), train_shape}, {test_path_, test_.size(), test_shape}};
  }

 private:
  std::string train_path_;
  std::string test_path_;
  DatasetWriter train_;
  DatasetWriter test_;
};

// The files of a set, open behind their headers.
struct MnistSet {
  MnistSet(const ConvertOptions& options, const std::string& prefix)
      : images(options.source + "/" + prefix + "-images-idx3-ubyte"),
        labels(options.source + "/" + prefix + "-labels-idx1-ubyte") {
    const Shape extents = ReadIdxHeader(images, 3);
    const Shape label_extents = ReadIdxHeader(labels, 1);
    if (extents[0] != label_extents[0]) {
      throw DataError(labels.path() + ": has " + std::to_string(label_extents[0]) + " labels for " +
                      std::to_string(extents[0]) + " images in " + images.path());
    }
    if (extents[0] == 0) throw DataError(images.path() + ": has no images");
    count = extents[0];
    shape = {1, extents[1], extents[2]};
  }

  BinaryFile images;
  BinaryFile labels;
  int64_t count = 0;
  Shape shape;  // of an image
};

void WriteMnist(MnistSet& set, DatasetWriter& writer, RecordCount& count) {
  for (int64_t i = 0; i < set.count; ++i) {
    const std::string pixels = set.images.Read(static_cast<size_t>(Count(set.shape)));
    writer.Append(MakeDatum(set.shape, pixels, static_cast<uint8_t>(set.labels.Read(1)[0])));
    count.Next();
  }
  set.images.ExpectEnd();
  set.labels.ExpectEnd();
  writer.Sync();
}

const Shape kCifarShape = {3, 32, 32};

std::vector<BinaryFile> OpenFiles(const ConvertOptions& options,
                                  const std::vector<std::string>& names) {
  std::vector<BinaryFile> files;
  for (const std::string& name : names) files.emplace_back(options.source + "/" + name);
  return files;
}

// By their sizes; whoever reads them finds what is wrong with these.
int64_t CifarRecordsIn(const std::vector<BinaryFile>& files) {
  uintmax_t bytes = 0;
  for (const BinaryFile& file : files) {
    std::error_code error;
    const uintmax_t size = std::filesystem::file_size(file.path(), error);
    if (!error) bytes += size;
  }
  return static_cast<int64_t>(bytes) / (1 + Count(kCifarShape));
}

// Records of a label byte and the pixels, channel by channel. `mean` may be null.
void WriteCifar(std::vector<BinaryFile> files, DatasetWriter& writer, MeanImage* mean,
                RecordCount& count) {
  constexpr int kClasses = 10;
  for (BinaryFile& file : files) {
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
      count.Next();
    }
  }
  if (writer.size() == 0) {
    const std::string last = std::filesystem::path(files.back().path()).filename();
    throw DataError(files.front().path() + (files.size() > 1 ? " to " + last + " have" : " has") +
                    " no images");
  }
  writer.Sync();
}

}  // namespace

ConvertResult ConvertMnist(const ConvertOptions& options) {
  MnistSet train(options, "train");
  MnistSet test(options, "t10k");
  TrainAndTest databases(options);
  RecordCount count(options.progress, train.count + test.count);
  WriteMnist(train, databases.train(), count);
  WriteMnist(test, databases.test(), count);
  ConvertResult result;
  result.databases = databases.Finish(train.shape, test.shape);
  return result;
}

ConvertResult ConvertCifar10(const ConvertOptions& options) {
  MeanImage mean(kCifarShape);
  const std::vector<std::string> train = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin"};
  std::vector<BinaryFile> train_files = OpenFiles(options, train);
  std::vector<BinaryFile> test_files = OpenFiles(options, {"test_batch.bin"});
  TrainAndTest databases(options);
  const std::string mean_file = options.out + "/mean.binaryproto";
  std::error_code unknown;
  if (!options.replace && std::filesystem::exists(mean_file, unknown)) {
    throw DataError(mean_file + " exists already; remove it, or replace it (--replace)");
  }
  CheckCanWrite(mean_file);
  RecordCount count(options.progress, CifarRecordsIn(train_files) + CifarRecordsIn(test_files));
  WriteCifar(std::move(train_files), databases.train(), &mean, count);
  WriteCifar(std::move(test_files), databases.test(), nullptr, count);
  PreparedFile prepared = mean.Prepare(mean_file);
  ConvertResult result;
  result.databases = databases.Finish(kCifarShape, kCifarShape);
  prepared.Place();
  result.other_files = {mean_file};
  return result;
}

}  // namespace poseidon
