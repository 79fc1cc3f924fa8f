// What golden data layers read, made by Caffe's side and by ours: the files in data/inputs, and
// databases and mean images.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/shape.h"
#include "core/random.h"
#include "proto/caffe.pb.h"

namespace poseidon {

class DataInputs {
 public:
  // Writes all into `directory`; `files` is data/inputs.
  DataInputs(const std::string& files, const std::string& directory) : directory_(directory + "/") {
    std::filesystem::copy(files, directory, std::filesystem::copy_options::recursive);
    WritePixels();
    WriteEncoded();
    WriteMeans();
  }

 private:
  using Records = std::vector<caffe::Datum>;

  static caffe::Datum Record(const Shape& shape, int label) {
    caffe::Datum datum;
    datum.set_channels(static_cast<int>(shape[0]));
    datum.set_height(static_cast<int>(shape[1]));
    datum.set_width(static_cast<int>(shape[2]));
    datum.set_label(label);
    return datum;
  }

  static caffe::Datum Pixels(const Shape& shape, int label) {
    caffe::Datum datum = Record(shape, label);
    Random random(DeriveSeed(5, static_cast<uint64_t>(label + Count(shape))));
    for (int64_t i = 0; i < Count(shape); ++i) {
      datum.mutable_data()->push_back(static_cast<char>(random.Below(256)));
    }
    return datum;
  }

  static caffe::Datum Floats(const Shape& shape, int label) {
    caffe::Datum datum = Record(shape, label);
    Random random(DeriveSeed(6, static_cast<uint64_t>(label)));
    for (int64_t i = 0; i < Count(shape); ++i) {
      datum.add_float_data(static_cast<float>(random.Gaussian()));
    }
    return datum;
  }

  // As Caffe's convert_imageset writes it: without a shape.
  caffe::Datum Encoded(const std::string& name, int label) const {
    std::ifstream file(directory_ + "images/" + name, std::ios::binary);
    caffe::Datum datum;
    datum.set_data(std::string(std::istreambuf_iterator<char>(file), {}));
    datum.set_label(label);
    datum.set_encoded(true);
    return datum;
  }

  void Write(const std::string& name, const Records& records) const {
    DatasetWriter writer(directory_ + name);
    for (const caffe::Datum& record : records) writer.Append(record);
    writer.Finish();
  }

  void WritePixels() const {
    Records pixels;
    for (const int label : {3, 0, -1, 70000, 9}) pixels.push_back(Pixels({3, 5, 4}, label));
    Write("pixels", pixels);
    Write("sizes", {Pixels({2, 5, 4}, 1), Pixels({2, 3, 6}, 2), Pixels({2, 8, 3}, 3)});
    Write("floats", {Floats({2, 3, 4}, 1), Floats({2, 3, 4}, 2), Floats({2, 3, 4}, 3)});
    Write("one", {Pixels({1, 3, 4}, 8)});
  }

  void WriteEncoded() const {
    Write("encoded_color", {Encoded("color.png", 1), Encoded("color.jpg", 2)});
    Write("encoded_gray", {Encoded("gray.png", 1), Encoded("gray.jpg", 2)});
    Write("encoded_both", {Encoded("gray.jpg", 1), Encoded("color.png", 2)});
    Write("encoded_alpha", {Encoded("alpha.png", 1)});
    Write("one_encoded", {Encoded("one.png", 8)});
  }

  void WriteMean(const std::string& name, const Shape& shape, bool old_fields) const {
    Random random(7);
    caffe::BlobProto mean;
    for (int64_t i = 0; i < Count(shape); ++i) {
      mean.add_data(static_cast<float>(100 + 50 * random.Uniform()));
    }
    if (old_fields) {
      mean.set_num(1);
      mean.set_channels(static_cast<int>(shape[0]));
      mean.set_height(static_cast<int>(shape[1]));
      mean.set_width(static_cast<int>(shape[2]));
    } else {
      mean.mutable_shape()->add_dim(1);
      for (const int64_t extent : shape) mean.mutable_shape()->add_dim(extent);
    }
    WriteBinaryFile(directory_ + name, mean);
  }

  void WriteMeans() const {
    WriteMean("mean.binaryproto", {3, 5, 4}, true);
    WriteMean("mean_shape.binaryproto", {3, 5, 4}, false);
    WriteMean("mean_one.binaryproto", {1, 3, 4}, true);
    WriteMean("mean_windows.binaryproto", {3, 9, 9}, true);
  }

  std::string directory_;
};

// While it lives, the working directory is another.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::string& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  std::filesystem::path before_;
};

// Value `i` of what is fed to MemoryData, images and labels alike.
inline float FedValue(int64_t i) { return 0.5F * static_cast<float>(i * i % 23); }

}  // namespace poseidon
