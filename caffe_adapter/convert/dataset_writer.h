// Writing an LMDB database of Caffe's Datum records.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "caffe_adapter/stores/lmdb_environment.h"
#include "core/process/unfinished_file.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// The key of a record, whose order is that of numbers: the number in eight digits, as Caffe's tools
// write it, and from 10^8 on a colon, which comes behind all digits, and eighteen; behind an
// underscore `name`, if there is one, as far as a key can be long.
std::string KeyOf(int64_t number, const std::string& name);

// Writes an LMDB of Datum that Caffe reads, too. Records go to a temporary directory beside `path`,
// which takes its name when Finish() has everything on disk: a database is there whole or not at
// all. One thread at a time.
class DatasetWriter {
 public:
  enum class Existing { kRefuse, kReplace };

  // Throws Error of kFailure if the disk is full, here and below, DataError if `path` exists
  // (unless it may be replaced) or can't be made.
  explicit DatasetWriter(const std::string& path, Existing existing = Existing::kRefuse);
  // Without Finish(), removes what was written.
  ~DatasetWriter();
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  // Appends a record; its key is KeyOf its number. Throws DataError if the disk is full.
  void Append(const caffe::Datum& datum, const std::string& name = "");
  void Finish();

  int64_t size() const { return size_; }

 private:
  struct Record {
    std::string key;
    std::string value;  // serialized
  };

  int TryCommit();  // an LMDB code
  void Commit();

  // A directory that is removed at the end.
  class TemporaryDirectory {
   public:
    // Beside `path`, on the same file system, so that it can be renamed to it.
    explicit TemporaryDirectory(const std::string& path);
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    const std::string& path() const { return path_; }
    // Gives it its name; then it is not removed.
    std::error_code FinishAs(const std::string& name);

   private:
    std::string path_;
    UnfinishedFile unfinished_;
  };

  std::string path_;
  std::optional<TemporaryDirectory> temporary_;
  std::optional<UnfinishedFile> database_;  // all that is in it
  Existing existing_;
  LmdbEnvironment environment_;
  std::vector<Record> pending_;  // of the transaction to come
  int64_t size_ = 0;
};

}  // namespace poseidon
