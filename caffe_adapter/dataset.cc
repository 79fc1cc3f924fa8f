#include "caffe_adapter/dataset.h"

#include <lmdb.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace poseidon {
namespace {

// LMDB reads through a memory map, where a page beyond the end of the file would end the process
// with SIGBUS: the file must be as long as its header says.
void CheckLength(MDB_env* environment, const std::string& path) {
  MDB_envinfo info;
  MDB_stat stat;
  CheckLmdb(mdb_env_info(environment, &info), path, "reading its header");
  CheckLmdb(mdb_env_stat(environment, &stat), path, "reading its header");
  const uint64_t expected = (static_cast<uint64_t>(info.me_last_pgno) + 1) * stat.ms_psize;
  const std::string file = path + "/data.mdb";
  std::error_code error;
  const uint64_t length = std::filesystem::file_size(file, error);
  if (error) throw DataError(file + ": " + error.message());
  if (length < expected) {
    throw DataError(file + ": truncated: its header says " + std::to_string(expected) +
                    " bytes, the file has " + std::to_string(length) + "; make or copy it anew");
  }
}

std::string_view ToView(const MDB_val& value) {
  return {static_cast<const char*>(value.mv_data), value.mv_size};
}

struct CursorCloser {
  void operator()(MDB_cursor* cursor) const { mdb_cursor_close(cursor); }
};

}  // namespace

Dataset::Dataset(const std::string& path) : path_(path), transaction_(nullptr) {
  Open();
  ListRecords();
  if (records_.empty()) throw DataError(path_ + ": the database has no records");
  const caffe::Datum first = Parse(0);
  record_shape_ = {first.channels(), first.height(), first.width()};
  Read(0);
}

void Dataset::Open() {
  std::error_code ignored;
  if (!std::filesystem::exists(path_ + "/data.mdb", ignored)) {
    throw DataError(path_ + ": no LMDB database here (a directory with a file data.mdb)");
  }
  environment_ = MakeLmdbEnvironment(path_);
  constexpr unsigned kFlags = MDB_RDONLY | MDB_NOLOCK | MDB_NOTLS;
  CheckLmdb(mdb_env_open(environment_.get(), path_.c_str(), kFlags, 0), path_, "opening");
  CheckLength(environment_.get(), path_);
  transaction_ = BeginLmdbTransaction(environment_.get(), MDB_RDONLY, path_);
}

void Dataset::ListRecords() {
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
  }
  if (code != MDB_NOTFOUND) {
    CheckLmdb(code, path_, "after record " + std::to_string(records_.size()));
  }
}

void Dataset::Fail(int64_t index, const std::string& message) const {
  throw DataError(path_ + ": record " + std::to_string(index) + " (key \"" +
                  std::string(records_[index].key) + "\"): " + message);
}

caffe::Datum Dataset::Parse(int64_t index) const {
  const std::string_view value = records_[index].value;
  caffe::Datum datum;
  if (!datum.ParseFromArray(value.data(), static_cast<int>(value.size()))) {
    Fail(index, "is no Datum");
  }
  return datum;
}

caffe::Datum Dataset::Read(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw DataError(path_ + ": there is no record " + std::to_string(index) + "; it has " +
                    std::to_string(size()));
  }
  caffe::Datum datum = Parse(index);
  if (datum.encoded()) Fail(index, "an encoded image is not supported; store pixels");
  if (!datum.has_label()) Fail(index, "has no label");
  const Shape shape = {datum.channels(), datum.height(), datum.width()};
  if (shape != record_shape_) {
    Fail(index, "is " + ToString(shape) + ", but the first record " + ToString(record_shape_));
  }
  if (datum.channels() < 1 || datum.height() < 1 || datum.width() < 1) {
    Fail(index, "is " + ToString(shape) + "; expected channels, height and width of at least 1");
  }
  if (!datum.data().empty() && datum.float_data_size() > 0) {
    Fail(index, "has both data and float_data");
  }
  const int64_t values =
      datum.data().empty() ? datum.float_data_size() : static_cast<int64_t>(datum.data().size());
  if (values != Count(shape)) {
    Fail(index, "has " + std::to_string(values) + " values; expected " +
                    std::to_string(Count(shape)) + " for " + ToString(shape));
  }
  return datum;
}

}  // namespace poseidon
