#include "caffe_adapter/convert/dataset_writer.h"

#include <lmdb.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <utility>

#include "core/error.h"
#include "core/files/directories.h"
#include "core/paths/links.h"
#include "core/paths/passing_error.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// Records a transaction: enough to make its cost small, few enough to keep them in memory.
constexpr size_t kRecordsPerTransaction = 1000;

// The map grows by doubling. Its size also becomes the address space that readers map.
constexpr size_t kInitialMapSize = size_t{1} << 24;

// All that LMDB writes.
constexpr const char* kDatabaseFiles[] = {"data.mdb", "lock.mdb"};

[[noreturn]] void FailToWrite(const std::string& what, const std::error_code& error) {
  const std::string message = what + ": " + error.message();
  if (MayPassForWriting(error.value())) throw Error(ExitCode::kFailure, message);
  throw ConfigError(message + "; choose another --out");
}

// Of "train_lmdb/", beside which another one is made.
std::string WithoutSlash(const fs::path& path) {
  return (path.has_filename() ? path : path.parent_path()).string();
}

// A database behind a link stays on the disk that it was put on.
std::string DatabasePath(const std::string& path) {
  const std::string name = WithoutSlash(fs::path(path).lexically_normal());
  if (const auto place = BehindLinks(name)) return WithoutSlash(*place);
  FailToWrite("can't make the database " + name,
              std::make_error_code(std::errc::too_many_symbolic_link_levels));
}

// What a directory of this process's gets by mkdir().
fs::perms DirectoryPermissions() {
  const mode_t mask = umask(077);  // which can only be asked for by setting it
  umask(mask);
  return fs::perms(0777 & ~mask);
}

// A fresh directory beside `path`, on the same file system, so that it can be renamed to it.
std::string MakeTemporaryDirectory(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  if (!parent.empty()) MakeDirectories(parent);
  std::string name = path + ".XXXXXX";
  if (mkdtemp(name.data()) == nullptr) {
    FailToWrite("can't make the database " + path, {errno, std::generic_category()});
  }
  std::error_code ignored;  // mkdtemp's are for its owner alone
  fs::permissions(name, DirectoryPermissions(), fs::perm_options::add, ignored);
  return name;
}

// As far as this user may set them: a directory may be another's.
void CopyPermissions(const std::string& from, const std::string& to) {
  std::error_code error;
  const fs::perms permissions = fs::status(from, error).permissions();
  if (!error) fs::permissions(to, permissions, error);
}

// Nothing else of the directory, should there be something.
std::error_code RemoveDatabase(const std::string& path) {
  std::error_code error;
  for (const char* name : kDatabaseFiles) {
    fs::remove(path + "/" + name, error);
    if (error) return error;
  }
  fs::remove(path, error);
  return error;
}

// Whether it is what NFS makes of a file that is removed while a process of this machine has it
// open, and removes when that has closed it.
bool IsKeptByNfs(const std::string& name) { return name.starts_with(".nfs"); }

// Why an entry of a directory is none of a database's; "" if it is.
std::string WhyNoDatabase(const fs::directory_entry& entry) {
  const std::string name = entry.path().filename().string();
  std::error_code ignored;
  if (IsKeptByNfs(name)) return "";
  if (std::find(std::begin(kDatabaseFiles), std::end(kDatabaseFiles), name) ==
      std::end(kDatabaseFiles)) {
    return "it has \"" + name + "\", and a database has only data.mdb and lock.mdb";
  }
  if (!fs::is_directory(entry.symlink_status(ignored))) return "";
  return "it has \"" + name + "\", which is a directory";
}

// Throws ConfigError unless there is nothing at `path`, or a directory with nothing but a database,
// be it damaged: whoever names another one by mistake must not lose it.
void CheckReplaceable(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string why = WhyNoDatabase(*entry);
    if (why.empty()) continue;
    throw ConfigError(path + " can't be replaced: " + why + "; choose another --out");
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    FailToWrite(path + " can't be replaced", error);
  }
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
    : path_(DatabasePath(path)), existing_(existing) {
  if (existing_ == Existing::kRefuse && Exists(path_)) {
    throw DataError(path_ + " exists already; remove it, or replace it (--replace)");
  }
  if (existing_ == Existing::kReplace) CheckReplaceable(path_);
  temporary_.emplace(path_);
  environment_ = MakeLmdbEnvironment(path_);
  CheckLmdb(mdb_env_set_mapsize(environment_.get(), kInitialMapSize), path_, "making it");
  // Synchronized to disk once, in Finish(); nobody else knows the directory, so no lock is needed.
  constexpr unsigned kFlags = MDB_NOSYNC | MDB_NOLOCK;
  database_.emplace([&] {
    const std::string& directory = temporary_->path();
    CheckLmdb(mdb_env_open(environment_.get(), directory.c_str(), kFlags, 0666), path_,
              "making it");
    return directory + "/data.mdb";
  });
}

DatasetWriter::~DatasetWriter() = default;

DatasetWriter::TemporaryDirectory::TemporaryDirectory(const std::string& path)
    : unfinished_([&] { return path_ = MakeTemporaryDirectory(path); }) {}

DatasetWriter::TemporaryDirectory::~TemporaryDirectory() {
  if (!path_.empty()) RemoveDatabase(path_);
}

std::error_code DatasetWriter::TemporaryDirectory::FinishAs(const std::string& name) {
  const std::error_code error(unfinished_.FinishAs(name), std::generic_category());
  if (!error) path_.clear();
  return error;
}

std::error_code DatasetWriter::TemporaryDirectory::ExchangeWith(const std::string& name) {
  return {unfinished_.ExchangeWith(name), std::generic_category()};
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

bool DatasetWriter::Replaces() const {
  if (existing_ == Existing::kRefuse || !Exists(path_)) return false;
  CheckReplaceable(path_);
  return true;
}

std::error_code DatasetWriter::Replace() {
  std::error_code error = temporary_->ExchangeWith(path_);
  const bool can =
      error != std::errc::invalid_argument && error != std::errc::function_not_supported;
  if (can) return error;
  // The directory stays, and its file is replaced. Locks are of those who have the old one open,
  // and whoever opens it between the two steps makes others.
  const std::string locks = path_ + "/lock.mdb";
  fs::remove(locks, error);
  if (error) return error;
  error.assign(database_->FinishAs(path_ + "/data.mdb"), std::generic_category());
  if (error) return error;
  CopyPermissions(temporary_->path(), path_);
  fs::remove(locks, error);
  return error;
}

void DatasetWriter::Sync() {
  if (!environment_) return;
  Commit();
  CheckLmdb(mdb_env_sync(environment_.get(), 1), path_, "writing");
  environment_.reset();
}

void DatasetWriter::Finish() {
  Sync();
  const std::error_code error = Replaces() ? Replace() : temporary_->FinishAs(path_);
  if (error) FailToWrite("can't give the database its name " + path_, error);
  temporary_.reset();
}

void DatasetWriter::Remove() {
  environment_.reset();
  temporary_.reset();
  if (!Replaces()) return;
  if (const std::error_code error = RemoveDatabase(path_)) {
    FailToWrite("can't remove " + path_, error);
  }
}

}  // namespace poseidon
