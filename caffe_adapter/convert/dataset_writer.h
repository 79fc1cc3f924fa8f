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
// or beside what `path` is a link to, which takes its name when everything is on disk: a database
// is there whole or not at all. One thread at a time.
//
//   DatasetWriter train("out/train_lmdb"), test("out/test_lmdb");  // both can be made
//   ...
//   train.Sync(), test.Sync();  // both fit on the disk
//   train.Finish(), test.Finish();
class DatasetWriter {
 public:
  enum class Existing { kRefuse, kReplace };

  // Throws DataError if `path` exists, unless it may be replaced; ConfigError, here and in Finish
  // and Remove, if it is no database, which is not replaced, or can't be written; Error of kFailure
  // if the disk is full, here and below.
  explicit DatasetWriter(const std::string& path, Existing existing = Existing::kRefuse);
  // Without Finish(), removes what was written.
  ~DatasetWriter();
  DatasetWriter(const DatasetWriter&) = delete;
  DatasetWriter& operator=(const DatasetWriter&) = delete;

  // Appends a record; its key is KeyOf its number.
  void Append(const caffe::Datum& datum, const std::string& name = "");
  // Has all on disk; nothing can be appended any more. Finish does it where nobody has.
  void Sync();
  void Finish();
  // Instead of Finish: removes the database that is to be replaced, if there is one, and what was
  // written.
  void Remove();

  int64_t size() const { return size_; }

 private:
  struct Record {
    std::string key;
    std::string value;  // serialized
  };

  int TryCommit();  // an LMDB code
  void Commit();
  // Whether there is a database to replace. Throws ConfigError where it is something else.
  bool Replaces() const;
  // Replaces it; whoever opens it finds the old one or the new one, also if this process is killed.
  // Where NFS has it and a process of this machine has the old one open, it is gone for a moment.
  std::error_code Replace();

  // A directory of a database, which is removed at the end.
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
    // The same in the place of the database that has the name, which is removed at the end. Where
    // the file system can't, nothing changes, and that is the error.
    std::error_code ExchangeWith(const std::string& name);

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
