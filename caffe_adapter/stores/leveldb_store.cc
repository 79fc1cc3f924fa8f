// LevelDB, where the build has it.
#include "caffe_adapter/stores/record_store.h"
#include "core/error.h"

#if POSEIDON_LEVELDB
#include <leveldb/db.h>
#include <leveldb/env.h>
#include <leveldb/helpers/memenv.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <vector>

#include "core/files/regular_file.h"
#include "core/paths/passing_error.h"
#endif

namespace poseidon {

#if POSEIDON_LEVELDB

namespace {

// LevelDB locks a database for one process and, on opening it, writes a new manifest and removes
// old files. Here several workers of a machine read the same one, perhaps without the right to
// write. So whatever LevelDB writes stays in memory, laid over the files, and locks always succeed.
class ReadOnlyEnvironment : public leveldb::EnvWrapper {
 public:
  ReadOnlyEnvironment()
      : EnvWrapper(leveldb::Env::Default()), memory_(leveldb::NewMemEnv(target())) {}

  // From now on nothing is written. After many reads LevelDB would compact files, which would take
  // memory; it gives up at the first failure to, and goes on reading.
  void SetOpened() { opened_ = true; }

  leveldb::Status NewSequentialFile(const std::string& name,
                                    leveldb::SequentialFile** file) override {
    if (IsSpecial(name)) return NotRegular(name);
    return At(name)->NewSequentialFile(name, file);
  }
  leveldb::Status NewRandomAccessFile(const std::string& name,
                                      leveldb::RandomAccessFile** file) override {
    if (IsSpecial(name)) return NotRegular(name);
    return At(name)->NewRandomAccessFile(name, file);
  }
  leveldb::Status NewWritableFile(const std::string& name, leveldb::WritableFile** file) override {
    if (opened_) return leveldb::Status::IOError(name, "the database is only read");
    return memory_->NewWritableFile(name, file);
  }
  leveldb::Status NewAppendableFile(const std::string& name,
                                    leveldb::WritableFile** file) override {
    return memory_->NewAppendableFile(name, file);
  }
  bool FileExists(const std::string& name) override { return At(name)->FileExists(name); }
  leveldb::Status GetChildren(const std::string& directory,
                              std::vector<std::string>* names) override {
    std::vector<std::string> written;
    memory_->GetChildren(directory, &written);
    leveldb::Status status = target()->GetChildren(directory, names);
    std::erase_if(*names,
                  [&](const std::string& name) { return IsHidden(directory + "/" + name); });
    names->insert(names->end(), written.begin(), written.end());
    std::sort(names->begin(), names->end());
    names->erase(std::unique(names->begin(), names->end()), names->end());
    return status;
  }
  leveldb::Status RemoveFile(const std::string& name) override {
    if (memory_->FileExists(name)) return memory_->RemoveFile(name);
    const std::lock_guard lock(mutex_);
    hidden_.insert(name);
    return leveldb::Status::OK();
  }
  leveldb::Status DeleteFile(const std::string& name) override { return RemoveFile(name); }
  leveldb::Status CreateDir(const std::string&) override { return leveldb::Status::OK(); }
  leveldb::Status RemoveDir(const std::string&) override { return leveldb::Status::OK(); }
  leveldb::Status GetFileSize(const std::string& name, uint64_t* size) override {
    return At(name)->GetFileSize(name, size);
  }
  leveldb::Status RenameFile(const std::string& from, const std::string& to) override {
    return memory_->RenameFile(from, to);  // only ever of what was just written
  }
  leveldb::Status LockFile(const std::string&, leveldb::FileLock** lock) override {
    *lock = new Lock;
    return leveldb::Status::OK();
  }
  leveldb::Status UnlockFile(leveldb::FileLock* lock) override {
    delete lock;
    return leveldb::Status::OK();
  }
  leveldb::Status NewLogger(const std::string&, leveldb::Logger** logger) override {
    *logger = new NoLogger;
    return leveldb::Status::OK();
  }

 private:
  struct Lock : leveldb::FileLock {};
  struct NoLogger : leveldb::Logger {
    void Logv(const char*, std::va_list) override {}
  };

  // Whether it is a pipe or a device, which might never end. LevelDB knows no exceptions.
  bool IsSpecial(const std::string& name) {
    std::error_code ignored;
    const std::filesystem::file_status status = std::filesystem::status(name, ignored);
    return At(name) == target() && std::filesystem::exists(status) &&
           !std::filesystem::is_regular_file(status);
  }
  static leveldb::Status NotRegular(const std::string& name) {
    return leveldb::Status::IOError(name, "is no regular file");
  }
  bool IsHidden(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return hidden_.contains(name);
  }
  // Who has the file; memory, which lacks it, for one that was removed.
  leveldb::Env* At(const std::string& name) {
    return memory_->FileExists(name) || IsHidden(name) ? memory_.get() : target();
  }

  std::unique_ptr<leveldb::Env> memory_;
  std::atomic<bool> opened_ = false;
  std::mutex mutex_;
  std::set<std::string> hidden_;  // removed from the files
};

class LevelDbStore : public RecordStore {
 public:
  LevelDbStore(std::string path, Records records) : path_(std::move(path)) {
    const std::string file = path_ + "/CURRENT";
    std::error_code unknown;  // whether it is there; the check of it then says why
    if (!std::filesystem::exists(file, unknown) && !unknown) {
      throw DataError(path_ + ": no LevelDB database here (a directory with a file CURRENT)");
    }
    CheckRegularFile(file, ExitCode::kDataError);
    leveldb::Options options;
    options.env = &environment_;
    options.paranoid_checks = true;
    leveldb::DB* database = nullptr;
    Check(leveldb::DB::Open(options, path_, &database), "opening");
    database_.reset(database);
    environment_.SetOpened();
    List(records);
  }

  int64_t size() const override { return static_cast<int64_t>(keys_.size()); }
  std::string_view key(int64_t index) const override { return keys_[index]; }
  bool Read(int64_t index, caffe::Datum& datum) const override {
    std::string value;
    Check(database_->Get(Options(), keys_[index], &value),
          "record " + std::to_string(index) + " (key \"" + keys_[index] + "\")");
    return datum.ParseFromString(value);
  }

 private:
  static leveldb::ReadOptions Options() {
    leveldb::ReadOptions options;
    options.verify_checksums = true;
    return options;
  }

  void Check(const leveldb::Status& status, const std::string& action) const {
    if (status.ok()) return;
    const std::string message = path_ + ": " + action + ": " + status.ToString();
    if (!status.IsIOError() || !EndsWithPassingError(message)) throw DataError(message);
    throw Error(ExitCode::kFailure, message + "; this may pass, so try again");
  }

  void List(Records records) {
    const std::unique_ptr<leveldb::Iterator> at(database_->NewIterator(Options()));
    for (at->SeekToFirst(); at->Valid(); at->Next()) {
      keys_.push_back(at->key().ToString());
      if (records == Records::kFirst) break;
    }
    Check(at->status(), "after record " + std::to_string(keys_.size()));
  }

  std::string path_;
  ReadOnlyEnvironment environment_;
  std::unique_ptr<leveldb::DB> database_;
  std::vector<std::string> keys_;
};

}  // namespace

bool HasLevelDb(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/CURRENT", ignored);
}

std::unique_ptr<RecordStore> OpenLevelDb(const std::string& path, Records records) {
  return std::make_unique<LevelDbStore>(path, records);
}

#else

bool HasLevelDb(const std::string&) { return false; }

std::unique_ptr<RecordStore> OpenLevelDb(const std::string& path, Records) {
  throw DataError(path +
                  ": backend LEVELDB (Caffe's default) needs LevelDB, which this build lacks; "
                  "install libleveldb-dev and build again, or make an LMDB and say backend: LMDB");
}

#endif

bool HasRecordStore(const std::string& path, caffe::DataParameter::DB backend) {
  return backend == caffe::DataParameter::LEVELDB ? HasLevelDb(path) : HasLmdb(path);
}

std::unique_ptr<RecordStore> OpenRecordStore(const std::string& path,
                                             caffe::DataParameter::DB backend, Records records) {
  return backend == caffe::DataParameter::LEVELDB ? OpenLevelDb(path, records)
                                                  : OpenLmdb(path, records);
}

}  // namespace poseidon
