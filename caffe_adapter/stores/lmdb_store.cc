// LMDB, straight from the mapped file.
#include <lmdb.h>

#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "caffe_adapter/stores/lmdb_check.h"
#include "caffe_adapter/stores/lmdb_environment.h"
#include "caffe_adapter/stores/record_store.h"
#include "core/error.h"

namespace poseidon {
namespace {

std::string_view ToView(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

struct CursorCloser {
  void operator()(MDB_cursor* cursor) const { mdb_cursor_close(cursor); }
};

class LmdbStore : public RecordStore {
 public:
  LmdbStore(std::string path, Records records) : path_(std::move(path)), transaction_(nullptr) {
    const std::string file = path_ + "/data.mdb";
    std::error_code unknown;  // whether it is there; the check of its pages then says why
    if (!std::filesystem::exists(file, unknown) && !unknown) {
      throw DataError(path_ + ": no LMDB database here (a directory with a file data.mdb)");
    }
    CheckLmdbPages(file, records);
    environment_ = MakeLmdbEnvironment(path_);
    constexpr unsigned kFlags = MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS;
    CheckLmdb(mdb_env_open(environment_.get(), path_.c_str(), kFlags, 0), path_, "opening");
    transaction_ = BeginLmdbTransaction(environment_.get(), MDB_RDONLY, path_);
    List(records);
  }

  int64_t size() const override { return static_cast<int64_t>(records_.size()); }
  std::string_view key(int64_t index) const override { return records_[index].key; }
  bool Read(int64_t index, caffe::Datum& datum) const override {
    const std::string_view value = records_[index].value;
    // What is larger is no record that anybody could have written.
    if (value.size() > std::numeric_limits<int>::max()) return false;
    return datum.ParseFromArray(value.data(), static_cast<int>(value.size()));
  }

 private:
  struct Record {
    std::string_view key;
    std::string_view value;  // in the mapped file
  };

  void List(Records records) {
    MDB_dbi database = 0;
    CheckLmdb(mdb_dbi_open(transaction_.get(), nullptr, 0, &database), path_, "opening");
    MDB_cursor* opened = nullptr;
    CheckLmdb(mdb_cursor_open(transaction_.get(), database, &opened), path_, "opening a cursor");
    const std::unique_ptr<MDB_cursor, CursorCloser> cursor(opened);
    MDB_val key;
    MDB_val value;
    int code = MDB_SUCCESS;
    while ((code = mdb_cursor_get(cursor.get(), &key, &value, MDB_NEXT)) == MDB_SUCCESS) {
      records_.push_back({ToView(key), ToView(value)});
      if (records == Records::kFirst) return;
    }
    if (code != MDB_NOTFOUND) {
      CheckLmdb(code, path_, "after record " + std::to_string(records_.size()));
    }
  }

  std::string path_;
  LmdbEnvironment environment_;
  LmdbTransaction transaction_;  // one for the store's life: keeps the records where they are
  std::vector<Record> records_;
};

}  // namespace

bool HasLmdb(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/data.mdb", ignored);
}

std::unique_ptr<RecordStore> OpenLmdb(const std::string& path, Records records) {
  return std::make_unique<LmdbStore>(path, records);
}

}  // namespace poseidon
