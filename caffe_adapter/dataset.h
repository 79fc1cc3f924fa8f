// Reading an LMDB database of Caffe's Datum records, by record number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "caffe_adapter/lmdb_environment.h"
#include "caffe_adapter/shape.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Reads an LMDB of Datum. Records are numbered from 0 in key order, the order Caffe reads them in.
// Opening lists the keys once (32 bytes of memory each); a record is then read straight from the
// mapped file.
//
// The database must not be written to while it is open here: no lock file is made, so that it can
// be read from a read-only file system. Any number of threads and processes may read at once.
class Dataset {
 public:
  // `path` is the database's directory. Throws DataError if it is no LMDB, is empty or truncated,
  // or its first record can't be used.
  explicit Dataset(const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size() const { return static_cast<int64_t>(records_.size()); }

  // Channels, height and width of the first record, which all others must have.
  const Shape& record_shape() const { return record_shape_; }

  // Record `index` of 0..size() - 1, with as many values in `data` or in `float_data` as its shape
  // says and a label. Throws DataError naming path, record and key otherwise, and for an encoded
  // (compressed) image.
  caffe::Datum Read(int64_t index) const;

 private:
  struct Record {
    std::string_view key;
    std::string_view value;  // in the mapped file
  };

  void Open();
  void ListRecords();
  caffe::Datum Parse(int64_t index) const;
  [[noreturn]] void Fail(int64_t index, const std::string& message) const;

  std::string path_;
  LmdbEnvironment environment_;
  LmdbTransaction transaction_;  // one for the dataset's life: keeps the records where they are
  std::vector<Record> records_;
  Shape record_shape_;
};

}  // namespace poseidon
