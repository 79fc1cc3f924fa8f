// Reading a database of Caffe's Datum records, by record number.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/net/shape.h"
#include "caffe_adapter/stores/record_store.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Why a record can't be used, or "" if it can: neither an encoded image nor as many values as its
// shape says.
std::string DatumError(const caffe::Datum& datum);

// Reads an LMDB or LevelDB of Datum. Records are numbered from 0 in key order, the order Caffe
// reads them in. Opening lists the keys once (an LMDB's take 32 bytes of memory each, a LevelDB's
// their length more); an LMDB's record is then read straight from the mapped file.
//
// The database must not be written to while it is open here: no lock is taken, so that it can be
// read from a read-only file system. Any number of threads and processes may read at once.
class Dataset {
 public:
  // `path` is the database's directory. Throws DataError if it is no such database, is empty,
  // truncated or corrupt, or its first record can't be used.
  explicit Dataset(const std::string& path,
                   caffe::DataParameter::DB backend = caffe::DataParameter::LMDB,
                   Records records = Records::kAll);

  const std::string& path() const { return path_; }
  int64_t size() const { return store_->size(); }

  // Record `index` of 0..size() - 1: either a compressed image (`encoded`) or of a shape of at
  // least 1 x 1 x 1 with as many values in `data` or in `float_data`. Throws DataError naming path,
  // record and key otherwise.
  caffe::Datum Read(int64_t index) const;

  // The same with an encoded image decoded. Records may differ in shape.
  caffe::Datum ReadDecoded(int64_t index, ImageChannels channels = ImageChannels::kAsStored) const;

  // Channels, height and width of the first record.
  Shape record_shape(ImageChannels channels = ImageChannels::kAsStored) const;

  // Of all keys and of some records, as SampleSource::Fingerprint.
  uint64_t Fingerprint() const;

  // "PATH: record 17 (key "00000017")".
  std::string Describe(int64_t index) const;

 private:
  [[noreturn]] void Fail(int64_t index, const std::string& message) const;

  std::string path_;
  std::unique_ptr<RecordStore> store_;
};

}  // namespace poseidon
