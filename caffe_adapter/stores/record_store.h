// The key-value databases that hold Caffe's records.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/caffe.pb.h"

namespace poseidon {

// How much of a database to list. To see what its records look like the first is enough; a list of
// millions takes seconds and reads much of the file.
enum class Records { kAll, kFirst };

// An open database, its keys listed in ascending order. Any number of threads may read.
class RecordStore {
 public:
  virtual ~RecordStore() = default;

  virtual int64_t size() const = 0;
  virtual std::string_view key(int64_t index) const = 0;
  // False if the value is no Datum. Throws DataError if it can't be read.
  virtual bool Read(int64_t index, caffe::Datum& datum) const = 0;
};

// Opens the database in directory `path`, as either backend of DataParameter. Writes nothing there
// and takes no lock, so that any number of processes may read it; it must not be written to
// meanwhile. Throws DataError for what is no such database, or truncated or corrupt, and for
// LevelDB in a build without it.
std::unique_ptr<RecordStore> OpenRecordStore(const std::string& path,
                                             caffe::DataParameter::DB backend, Records records);

// Whether a database of the backend is in directory `path` and this build can open one. Opens
// nothing: what is there may be damaged.
bool HasRecordStore(const std::string& path, caffe::DataParameter::DB backend);

// The backends.
bool HasLmdb(const std::string& path);
bool HasLevelDb(const std::string& path);
std::unique_ptr<RecordStore> OpenLmdb(const std::string& path, Records records);
std::unique_ptr<RecordStore> OpenLevelDb(const std::string& path, Records records);

}  // namespace poseidon
