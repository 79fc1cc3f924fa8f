// The Data layer on LevelDB.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <leveldb/db.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <iostream>
#include <map>

#include "caffe_adapter/data/dataset.h"
#include "core/error.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

class CaffeLevelDbTest : public testing::Test {
 protected:
  void Write(int records) const {
    leveldb::Options options;
    options.create_if_missing = true;
    leveldb::DB* opened = nullptr;
    ASSERT_TRUE(leveldb::DB::Open(options, path_, &opened).ok());
    const std::unique_ptr<leveldb::DB> database(opened);
    for (int i = 0; i < records; ++i) {
      caffe::Datum datum;
      datum.set_channels(1);
      datum.set_height(40);
      datum.set_width(50);
      datum.set_data(std::string(2000, static_cast<char>(i)));
      datum.set_label(i);
      char key[16];
      std::snprintf(key, sizeof key, "%08d", i);
      database->Put({}, key, datum.SerializeAsString());
    }
  }

  // Of every file, its size and time.
  std::map<std::string, std::pair<uintmax_t, std::filesystem::file_time_type>> Files() const {
    std::map<std::string, std::pair<uintmax_t, std::filesystem::file_time_type>> files;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      files[entry.path()] = {entry.file_size(), entry.last_write_time()};
    }
    return files;
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.Path("db");
};

// Several at once, as workers on one machine; some of the records are in the log only.
TEST_F(CaffeLevelDbTest, AnyNumberReadAndNothingIsWritten) {
  Write(6000);
  const auto before = Files();
  const Dataset first(path_, caffe::DataParameter::LEVELDB);
  const Dataset second(path_, caffe::DataParameter::LEVELDB);
  for (const Dataset* dataset : {&first, &second}) {
    ASSERT_EQ(dataset->size(), 6000);
    for (const int i : {0, 5999, 17, 3000}) {
      EXPECT_EQ(dataset->Read(i).label(), i);
      EXPECT_EQ(dataset->Read(i).data()[1999], static_cast<char>(i));
    }
  }
  EXPECT_EQ(Dataset(path_, caffe::DataParameter::LEVELDB, Records::kFirst).size(), 1);
  EXPECT_EQ(Files(), before);
}

// So many seeks that LevelDB wants to compact.
TEST_F(CaffeLevelDbTest, ReadsForLong) {
  Write(6000);
  const Dataset dataset(path_, caffe::DataParameter::LEVELDB);
  for (int64_t i = 0; i < 60000; ++i) {
    const int64_t record = i * 1789 % 6000;
    ASSERT_EQ(dataset.Read(record).label(), record);
  }
}

TEST_F(CaffeLevelDbTest, BadDatabases) {
  const auto error = [&] {
    return MessageOf<DataError>([&] {
      const Dataset dataset(path_, caffe::DataParameter::LEVELDB);
      for (int64_t i = 0; i < dataset.size(); ++i) dataset.Read(i);
    });
  };
  EXPECT_THAT(error(), HasSubstr(path_ + ": no LevelDB database here"));
  std::filesystem::create_symlink(path_, path_);
  EXPECT_EQ(error(), "can't read " + path_ + "/CURRENT: Too many levels of symbolic links");
  std::filesystem::remove(path_);
  Write(6000);
  EXPECT_EQ(error(), "");
  uintmax_t damaged = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    if (entry.path().extension() != ".ldb") continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(entry.file_size() / 2));
    file << "damage";
    ++damaged;
  }
  ASSERT_GT(damaged, 0u);
  EXPECT_THAT(error(), HasSubstr(path_ + ": after record "));
  EXPECT_THAT(error(), HasSubstr("Corruption"));
}

using CaffeLevelDbDeathTest = CaffeLevelDbTest;

// So it is tried again, or the job is run again.
TEST_F(CaffeLevelDbDeathTest, WhatCanNotBeReadForAMomentIsNoFaultOfTheData) {
  Write(1);
  const auto end_by_reading = [this] {
    try {
      BreakCall({.number = SYS_read, .error = EIO});
      const Dataset dataset(path_, caffe::DataParameter::LEVELDB);
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  EXPECT_EXIT(end_by_reading(), testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
              ": opening: IO error: .*: Input/output error; this may pass, so try again");
}

}  // namespace
}  // namespace poseidon
