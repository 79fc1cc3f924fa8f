#include "caffe_adapter/convert/dataset_writer.h"

#include <lmdb.h>
#include <stdlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/error.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// Records a transaction: enough to make its cost small, few enough to keep them in memory.
constexpr size_t kRecordsPerTransaction = 1000;

// The map grows by doubling. Its size also becomes the address space that readers map.
constexpr size_t kInitialMapSize = size_t{1} << 24;

// A fresh directory beside `path`, on the same file system, so that it can be renamed to it.
std::string MakeTemporaryDirectory(const std::string& path) {
  std::error_code error;
  const fs::path parent = fs::path(path).parent_path();
  if (!parent.empty()) fs::create_directories(parent, error);
  std::string name = path + ".XXXXXX";
  if (error || mkdtemp(name.data()) == nullptr) {
    throw DataError("can't make the database " + path + ": " +
                    (error ? error.message() : std::strerror(errno)));
  }
  fs::permissions(name, fs::perms(0755), error);  // mkdtemp's are for its owner alone
  return name;
}

MDB_val ToValue(const std::string& bytes) {
  return {bytes.size(), const_cast<char*>(bytes.data())};  // LMDB only reads it
}

// False also where it can't be told: making or renaming the database then says why.
bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

}  // namespace

std::string KeyOf(int64_t number, const std::string& name) {
  constexpr size_t kMaxKey = 511;  // LMDB's limit
  constexpr int64_t kEightDigits = 100'000'000;
  char digits[24];
  const char* const format = number < kEightDigits ? "%08lld" : ":%018lld";
  std::snprintf(digits, sizeof(digits), format, static_cast<long long>(number));
  return (name.empty() ? digits : digits + ("_" + name)).substr(0, kMaxKey);
}

DatasetWriter::DatasetWriter(const std::string& path, Existing existing)
    : path_(fs::path(path).lexically_normal().string()), existing_(existing) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  if (existing_ == Existing::kRefuse && Exists(path_)) {
    throw DataError(path_ + " exists already; remove it, or replace it (--replace)");
  }
  temporary_.emplace(path_);
  environment_ = MakeLmdbEnvironment(path_);
  CheckLmdb(mdb_env_set_mapsize(environment_.get(), kInitialMapSize), path_, "making it");
  // Synchronized to disk once, in Finish(); nobody else knows the directory, so no lock is needed.
  constexpr unsigned kFlags = MDB_NOSYNC | MDB_NOLOCK;
  database_.emplace([&] {
    const std::string& directory = temporary_->path();
    CheckLmdb(mdb_env_open(environment_.get(), directory.c_str(), kFlags, 0644), path_,
              "making it");
    return directory + "/data.mdb";
  });
}

DatasetWriter::~DatasetWriter() = default;

DatasetWriter::TemporaryDirectory::TemporaryDirectory(const std::string& path)
    : unfinished_([&] { return path_ = MakeTemporaryDirectory(path); }) {}

DatasetWriter::TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

std::error_code DatasetWriter::TemporaryDirectory::FinishAs(const std::string& name) {
  const std::error_code error(unfinished_.FinishAs(name), std::generic_category());
  if (!error) path_.clear();
  return error;
}

void DatasetWriter::Append(const caffe::Datum& datum, const std::string& name) {
  pending_.push_back({KeyOf(size_, name), datum.SerializeAsString()});
  ++size_;
  if (pending_.size() == kRecordsPerTransaction) Commit();
}

int DatasetWriter::TryCommit() {
  LmdbTransaction transaction = BeginLmdbTransaction(environment_.get(), 0, path_);
  MDB_dbi database = 0;
  CheckLmdb(mdb_dbi_open(transaction.get(), nullptr, 0, &database), path_, "writing");
  for (const Record& record : pending_) {
    MDB_val key = ToValue(record.key);
    MDB_val value = ToValue(record.value);
    const int code = mdb_put(transaction.get(), database, &key, &value, MDB_APPEND);
    if (code != MDB_SUCCESS) return code;
  }
  return mdb_txn_commit(transaction.release());
}

void DatasetWriter::Commit() {
  int code = TryCommit();
  while (code == MDB_MAP_FULL) {
    MDB_envinfo info;
    CheckLmdb(mdb_env_info(environment_.get(), &info), path_, "writing");
    CheckLmdb(mdb_env_set_mapsize(environment_.get(), 2 * info.me_mapsize), path_, "writing");
    code = TryCommit();
  }
  CheckLmdb(code, path_, "writing");
  pending_.clear();
}

void DatasetWriter::Finish() {
  Commit();
  CheckLmdb(mdb_env_sync(environment_.get(), 1), path_, "writing");
  environment_.reset();
  std::error_code error;
  const std::string old = temporary_->path() + ".old";
  const bool replaces = existing_ == Existing::kReplace && Exists(path_);
  if (replaces) fs::rename(path_, old, error);
  if (!error) error = temporary_->FinishAs(path_);
  if (error) {
    std::error_code ignored;
    if (replaces) fs::rename(old, path_, ignored);
    throw DataError("can't give the database its name " + path_ + ": " + error.message());
  }
  if (replaces) fs::remove_all(old, error);
}

}  // namespace poseidon
