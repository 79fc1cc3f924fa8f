// Making HDF5 files.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "caffe_adapter/net/shape.h"
#include "core/atomic_file.h"

namespace poseidon {

// A file in memory until it is written. One thread at a time; different ones are independent. In a
// build without HDF5 the constructor throws Error with that reason.
class Hdf5Writer {
 public:
  // `path` is where Write shall put it.
  explicit Hdf5Writer(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // A group; datasets make those that their names have before a slash.
  void AddGroup(const std::string& name);
  void AddFloats(const std::string& dataset, const Shape& shape, std::span<const float> values);
  void AddInteger(const std::string& dataset, int32_t value);
  void AddText(const std::string& dataset, const std::string& text);

  // Writes it under a temporary name. Throws Error.
  PreparedFile Prepare();
  // The file is there whole or not at all. Throws Error.
  void Write() { Prepare().Place(); }

 private:
  std::string path_;
  int64_t file_ = -1;  // the library's handle
};

}  // namespace poseidon
