// Reading HDF5 files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"

namespace poseidon {

// Whether this build can read HDF5.
bool HasHdf5();

// An open file. Any number of threads may use files at the same time; the library lets one work at
// a time. In a build without HDF5 the constructor throws DataError with that reason. Whatever can't
// be read now, as it may be another time, is Error of kFailure here and below: the disk or the file
// server fails, and not the file.
class Hdf5File {
 public:
  // Throws DataError if the file can't be read, is no HDF5, or is truncated.
  explicit Hdf5File(const std::string& path);
  ~Hdf5File();
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;

  const std::string& path() const { return path_; }

  // The extents of a dataset of numbers. Throws DataError naming file and dataset if there is none
  // of that name or it has something else.
  Shape ShapeOf(const std::string& dataset) const;

  // Its values, whatever their type, as floats. Throws DataError.
  std::vector<float> Read(const std::string& dataset) const;

  // A dataset of one whole number. Throws DataError.
  int64_t ReadInteger(const std::string& dataset) const;

  // Whether there is a dataset or group of that name, with slashes between groups.
  bool Has(const std::string& dataset) const;
  // The names of the datasets and groups in a group, sorted; of what is no group, none.
  std::vector<std::string> NamesIn(const std::string& group) const;
  // A dataset that is one text of fixed length. Throws DataError.
  std::string ReadText(const std::string& dataset) const;

 private:
  std::string path_;
  int64_t file_;  // the library's handle
};

}  // namespace poseidon
