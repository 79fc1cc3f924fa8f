// The HDF5Data layer: rows of the datasets of HDF5 files, which are named in a list.
#include <algorithm>
#include <list>
#include <sstream>
#include <string_view>

#include "caffe_adapter/data/fingerprint.h"
#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/files/file.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "core/error.h"

namespace poseidon {
namespace {

std::vector<std::string> ReadFileList(const std::string& path) {
  std::istringstream words(ReadText(path));
  std::vector<std::string> files;
  for (std::string word; words >> word;) files.push_back(word);
  if (files.empty()) throw DataError(path + ": lists no HDF5 files");
  return files;
}

// The shapes of the datasets called like the tops, which have as many rows each.
std::vector<Shape> DatasetShapes(const Hdf5File& file, const std::vector<std::string>& tops) {
  std::vector<Shape> shapes;
  for (const std::string& top : tops) {
    shapes.push_back(file.ShapeOf(top));
    if (shapes.back().empty()) {
      throw DataError(file.path() + ": dataset \"" + top + "\" is a scalar; expected rows");
    }
    if (shapes.back()[0] != shapes[0][0]) {
      throw DataError(file.path() + ": dataset \"" + top + "\" has " +
                      std::to_string(shapes.back()[0]) + " rows; expected " +
                      std::to_string(shapes[0][0]) + ", those of \"" + tops[0] + "\"");
    }
  }
  return shapes;
}

std::string_view BytesOf(const float* values, size_t count) {
  return {reinterpret_cast<const char*>(values), count * sizeof(float)};
}

Shape RowShape(const Shape& shape) { return {shape.begin() + 1, shape.end()}; }

class Hdf5Source : public SampleSource {
 public:
  explicit Hdf5Source(const LayerDescription& layer)
      : files_(ReadFileList(layer.parameter.hdf5_data_param().source())),
        tops_(layer.parameter.top().begin(), layer.parameter.top().end()) {
    for (const std::string& path : files_) {
      const std::vector<Shape> shapes = DatasetShapes(Hdf5File(path), tops_);
      if (row_shapes_.empty()) {
        for (const Shape& shape : shapes) row_shapes_.push_back(RowShape(shape));
      }
      CheckRows(path, shapes);
      begins_.push_back(begins_.empty() ? 0 : begins_.back() + rows_.back());
      rows_.push_back(shapes[0][0]);
    }
  }

  OrderedRecords records() const override { return {begins_.back() + rows_.back(), rows_}; }

  // Files are read whole, so only the first one's rows are looked at.
  uint64_t Fingerprint() override {
    uint64_t hash = 0;
    for (const int64_t rows : rows_) hash = ExtendFingerprint(hash, std::to_string(rows));
    try {
      const Loaded& first = Load(0);
      for (const std::vector<float>& values : first.tops) {
        const size_t row = values.size() / static_cast<size_t>(rows_[0]);
        for (const int64_t record : RecordsToLookAt(rows_[0])) {
          hash = ExtendFingerprint(hash, BytesOf(values.data() + record * row, row));
        }
      }
    } catch (const DataError&) {
    }
    return hash;
  }

  void Read(int64_t record, uint64_t, std::span<const std::span<float>> tops) override {
    const size_t file = FileOf(record);
    const Loaded& loaded = Load(file);
    const int64_t row = record - begins_[file];
    for (size_t i = 0; i < tops.size(); ++i) {
      const auto begin = loaded.tops[i].begin() + row * static_cast<int64_t>(tops[i].size());
      std::copy_n(begin, tops[i].size(), tops[i].begin());
    }
  }

  std::string Describe(int64_t record) const override {
    const size_t file = FileOf(record);
    return "row " + std::to_string(record - begins_[file]) + " of " + files_[file];
  }

 private:
  struct Loaded {
    size_t file;
    std::vector<std::vector<float>> tops;
  };

  void CheckRows(const std::string& path, const std::vector<Shape>& shapes) const {
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (RowShape(shapes[i]) == row_shapes_[i]) continue;
      throw DataError(path + ": dataset \"" + tops_[i] + "\" has rows of " +
                      ToString(RowShape(shapes[i])) + ", but " + ToString(row_shapes_[i]) + " in " +
                      files_[0]);
    }
  }

  // Somebody may have written it anew since all workers agreed on the data.
  void CheckUnchanged(size_t file, const std::vector<Shape>& shapes) const {
    for (size_t i = 0; i < shapes.size(); ++i) {
      Shape before = {rows_[file]};
      before.insert(before.end(), row_shapes_[i].begin(), row_shapes_[i].end());
      if (shapes[i] == before) continue;
      throw DataError(files_[file] + ": has changed since the job began: dataset \"" + tops_[i] +
                      "\" is " + ToString(shapes[i]) + ", it was " + ToString(before) +
                      "; start the job again");
    }
  }

  size_t FileOf(int64_t record) const {
    return std::upper_bound(begins_.begin(), begins_.end(), record) - begins_.begin() - 1;
  }

  // Files are read whole, as in Caffe. The last two are kept: a batch may end in one and begin in
  // another.
  const Loaded& Load(size_t file) {
    constexpr size_t kKept = 2;
    const auto found = std::find_if(loaded_.begin(), loaded_.end(),
                                    [&](const Loaded& each) { return each.file == file; });
    if (found != loaded_.end()) return *found;
    if (loaded_.size() == kKept) loaded_.pop_back();
    const Hdf5File opened(files_[file]);
    CheckUnchanged(file, DatasetShapes(opened, tops_));
    Loaded loaded{file, {}};
    for (const std::string& top : tops_) loaded.tops.push_back(opened.Read(top));
    loaded_.push_front(std::move(loaded));
    return loaded_.front();
  }

  std::vector<std::string> files_;
  std::vector<std::string> tops_;
  std::vector<Shape> row_shapes_;  // by top
  std::vector<int64_t> rows_;      // by file
  std::vector<int64_t> begins_;    // by file: its first record
  std::list<Loaded> loaded_;       // the last one first
};

}  // namespace

std::unique_ptr<SampleSource> MakeHdf5Source(const LayerDescription& layer) {
  return std::make_unique<Hdf5Source>(layer);
}

std::vector<Shape> FirstHdf5Shapes(const caffe::LayerParameter& layer) {
  const Hdf5File file(ReadFileList(layer.hdf5_data_param().source())[0]);
  std::vector<Shape> shapes;
  for (const Shape& shape : DatasetShapes(file, {layer.top().begin(), layer.top().end()})) {
    shapes.push_back(RowShape(shape));
  }
  return shapes;
}

}  // namespace poseidon
