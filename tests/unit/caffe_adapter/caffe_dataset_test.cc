#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cerrno>
#include <random>
#include <thread>

#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/data/dataset.h"
#include "caffe_adapter/stores/lmdb_check.h"
#include "caffe_adapter/stores/lmdb_environment.h"
#include "core/error.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

caffe::Datum MakeDatum(int channels, int height, int width, int label) {
  std::mt19937 random(static_cast<unsigned>(label));
  std::string pixels;
  for (int i = 0; i < channels * height * width; ++i) pixels += static_cast<char>(random());
  caffe::Datum datum;
  datum.set_channels(channels);
  datum.set_height(height);
  datum.set_width(width);
  datum.set_data(pixels);
  datum.set_label(label);
  return datum;
}

class CaffeDatasetTest : public testing::Test {
 protected:
  void Write(const std::vector<caffe::Datum>& records) const {
    DatasetWriter writer(path_, DatasetWriter::Existing::kReplace);
    for (const caffe::Datum& record : records) writer.Append(record);
    writer.Finish();
  }

  // Of opening the database and reading record `index`, without the directory's name.
  std::string ReadError(int64_t index) const {
    const std::string message = MessageOf<DataError>([&] { Dataset(path_).Read(index); });
    EXPECT_THAT(message, StartsWith(path_));
    return message.substr(std::min(path_.size(), message.size()));
  }

  size_t EntriesBeside() const {
    return std::distance(fs::directory_iterator(directory_.path()), fs::directory_iterator());
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.Path("db");
};

TEST_F(CaffeDatasetTest, WhatIsWrittenIsReadByRecordNumber) {
  // More than one transaction, and more than the first map: it has to grow.
  constexpr int kRecords = 2500;
  std::vector<caffe::Datum> records;
  for (int i = 0; i < kRecords; ++i) records.push_back(MakeDatum(3, 60, 60, i));
  Write(records);
  const Dataset dataset(path_);
  EXPECT_EQ(dataset.size(), kRecords);
  EXPECT_THAT(dataset.record_shape(), ElementsAre(3, 60, 60));
  std::mt19937 random(1);
  for (int n = 0; n < 500; ++n) {
    const int i = static_cast<int>(random() % kRecords);
    EXPECT_EQ(dataset.Read(i).SerializeAsString(), records[i].SerializeAsString());
  }
  EXPECT_EQ(EntriesBeside(), 1u);
  EXPECT_FALSE(fs::exists(path_ + "/lock.mdb"));
}

TEST_F(CaffeDatasetTest, ManyThreadsRead) {
  std::vector<caffe::Datum> records;
  for (int i = 0; i < 100; ++i) records.push_back(MakeDatum(1, 4, 4, i));
  Write(records);
  const Dataset dataset(path_);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) EXPECT_EQ(dataset.Read(i).label(), i);
    });
  }
}

TEST_F(CaffeDatasetTest, KeysAreInTheOrderOfTheirNumbers) {
  EXPECT_EQ(KeyOf(7, ""), "00000007");
  EXPECT_EQ(KeyOf(99'999'999, "a.png"), "99999999_a.png");
  std::string before;
  for (const int64_t number :
       {int64_t{0}, int64_t{99'999'998}, int64_t{99'999'999}, int64_t{100'000'000},
        int64_t{999'999'999}, int64_t{1'000'000'000}, int64_t{1} << 40}) {
    const std::string key = KeyOf(number, "name");
    EXPECT_LT(before, key);
    before = key;
  }
}

TEST_F(CaffeDatasetTest, AnUnfinishedDatabaseLeavesNothing) {
  {
    DatasetWriter writer(path_);
    for (int i = 0; i < 1500; ++i) writer.Append(MakeDatum(1, 2, 2, i));
    EXPECT_EQ(EntriesBeside(), 1u);
    EXPECT_FALSE(fs::exists(path_));
  }
  EXPECT_EQ(EntriesBeside(), 0u);
}

TEST_F(CaffeDatasetTest, AnExistingDatabaseIsReplacedOnlyOnRequest) {
  Write({MakeDatum(1, 2, 2, 7)});
  EXPECT_EQ(MessageOf<DataError>([&] { DatasetWriter writer(path_); }),
            path_ + " exists already; remove it, or replace it (--replace)");
  Write({MakeDatum(1, 2, 2, 8), MakeDatum(1, 2, 2, 9)});
  EXPECT_EQ(Dataset(path_).Read(1).label(), 9);
  EXPECT_EQ(EntriesBeside(), 1u);
}

// As on NFS. With two renames there would be nothing of the name in between, where a process may be
// killed; so the directory stays.
TEST_F(CaffeDatasetTest, WhereTwoNamesCanNotBeExchangedADatabaseIsReplacedAtOnceToo) {
  const auto directory = [&] {
    struct stat status {};
    EXPECT_EQ(stat(path_.c_str(), &status), 0);
    return status.st_ino;
  };
  const mode_t mask = umask(027);
  for (const int error : {EINVAL, ENOSYS}) {
    Write({MakeDatum(1, 2, 2, 7)});
    directory_.Write("db/lock.mdb", "");
    fs::permissions(path_, fs::perms::owner_all);
    const std::string kept = directory_.Write("db/.nfs00000000005a013500000001", "");
    const ino_t before = directory();
    std::thread([&] {
      BreakCall({.number = SYS_renameat2,
                 .error = static_cast<uint32_t>(error),
                 .argument = 4,
                 .least = 1});  // flags
      Write({MakeDatum(1, 2, 2, 8), MakeDatum(1, 2, 2, 9)});
    }).join();
    EXPECT_EQ(directory(), before);
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0750)) << "by the umask";
    EXPECT_TRUE(fs::remove(kept)) << "who has it open may still read it";
    EXPECT_EQ(Dataset(path_).Read(1).label(), 9);
    EXPECT_FALSE(fs::exists(path_ + "/lock.mdb"));
    EXPECT_EQ(EntriesBeside(), 1u);
  }
  umask(mask);
}

TEST(CheckLmdbTest, WhatMayPassIsNoFaultOfTheData) {
  const auto code_of = [](int code) {
    try {
      CheckLmdb(code, "db", "opening");
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), StartsWith("db: opening: "));
      return error.exit_code();
    }
    return ExitCode::kSuccess;
  };
  EXPECT_EQ(code_of(0), ExitCode::kSuccess);
  for (const int passing : {EIO, ESTALE, ETIMEDOUT, EMFILE, ENFILE, ENOMEM, ENOSPC, EDQUOT}) {
    EXPECT_EQ(code_of(passing), ExitCode::kFailure) << passing;
  }
  constexpr int kCorrupted = -30796;  // LMDB's own
  for (const int lasting : {ENOENT, EACCES, EINVAL, kCorrupted}) {
    EXPECT_EQ(code_of(lasting), ExitCode::kDataError) << lasting;
  }
}

TEST_F(CaffeDatasetTest, AFileThatCanNotBeMappedForAMomentIsNoFaultOfTheData) {
  constexpr uint32_t kSize = uint32_t{1} << 30;  // more than any other part of memory takes at once
  const std::string file = directory_.Write("db/data.mdb", "");
  fs::resize_file(file, kSize);  // takes no space
  std::string message;
  std::thread([&] {
    BreakCall({.number = SYS_mmap, .error = ENOMEM, .argument = 1, .least = kSize});
    message = MessageOf<Error>([&] { CheckLmdbPages(file, Records::kAll); });
  }).join();
  EXPECT_EQ(message,
            "can't read " + file + ": Cannot allocate memory; this may pass, so try again");
}

TEST_F(CaffeDatasetTest, OnlyADatabaseIsReplaced) {
  const auto error = [&] {
    return MessageOf<ConfigError>(
        [&] { DatasetWriter writer(path_, DatasetWriter::Existing::kReplace); });
  };
  directory_.Write("db/images/1.png", "pixels");
  EXPECT_EQ(error(), path_ +
                         " can't be replaced: it has \"images\", and a database has only "
                         "data.mdb and lock.mdb; choose another --out");
  EXPECT_TRUE(fs::exists(path_ + "/images/1.png"));
  fs::remove_all(path_);
  fs::create_directories(path_ + "/data.mdb");
  EXPECT_THAT(error(), HasSubstr("it has \"data.mdb\", which is a directory; "));
  fs::remove_all(path_);
  directory_.Write("db", "notes");
  EXPECT_EQ(error(), path_ + " can't be replaced: Not a directory; choose another --out");
  EXPECT_EQ(fs::file_size(path_), 5u);
  fs::remove(path_);
  fs::create_directory(path_);
  Write({MakeDatum(1, 2, 2, 7)});
  directory_.Write("db/data.mdb", "damage");
  directory_.Write("db/lock.mdb", "");
  Write({MakeDatum(1, 2, 2, 8)});
  EXPECT_EQ(Dataset(path_).Read(0).label(), 8);
  EXPECT_FALSE(fs::exists(path_ + "/lock.mdb"));
  EXPECT_EQ(EntriesBeside(), 1u);
}

TEST_F(CaffeDatasetTest, WhatComesWhileADatabaseIsMadeStays) {
  using Existing = DatasetWriter::Existing;
  for (const Existing existing : {Existing::kReplace, Existing::kRefuse}) {
    fs::remove_all(path_);
    DatasetWriter writer(path_, existing);
    writer.Append(MakeDatum(1, 2, 2, 7));
    directory_.Write("db/notes", "mine");
    EXPECT_THAT(MessageOf<ConfigError>([&] { writer.Finish(); }), HasSubstr("; choose another"));
    EXPECT_TRUE(fs::exists(path_ + "/notes"));
  }
  EXPECT_EQ(EntriesBeside(), 1u);
}

TEST_F(CaffeDatasetTest, ADatabaseBehindALinkStaysOnItsDisk) {
  const std::string disk = directory_.Path("disk");
  fs::create_directory(disk);
  fs::create_symlink("second", path_);
  fs::create_symlink("disk/db/", directory_.Path("second"));
  for (const int label : {7, 8}) {  // the first one is made, the second replaces it
    Write({MakeDatum(1, 2, 2, label)});
    EXPECT_EQ(Dataset(disk + "/db").Read(0).label(), label);
    EXPECT_TRUE(fs::is_symlink(path_));
  }
  EXPECT_THAT(MessageOf<DataError>([&] { DatasetWriter writer(path_); }),
              HasSubstr("disk/db exists already"));
  EXPECT_EQ(std::distance(fs::directory_iterator(disk), fs::directory_iterator()), 1);
  EXPECT_EQ(EntriesBeside(), 3u);

  fs::remove(path_);
  fs::create_symlink("db", path_);
  EXPECT_EQ(MessageOf<ConfigError>([&] { DatasetWriter writer(path_); }),
            "can't make the database " + path_ +
                ": Too many levels of symbolic links; choose another --out");
}

TEST_F(CaffeDatasetTest, ADatabaseThatCannotBeMadeIsNoFaultOfTheData) {
  const std::string file = directory_.Write("file", "");
  EXPECT_EQ(MessageOf<ConfigError>([&] { DatasetWriter writer(file + "/db"); }),
            "can't make the directory " + file + ": Not a directory; choose another one");
  // Longer than a name can be.
  EXPECT_THAT(MessageOf<ConfigError>([&] { DatasetWriter writer(path_ + std::string(252, 'x')); }),
              HasSubstr(": File name too long; choose another --out"));
}

TEST_F(CaffeDatasetTest, TheUmaskSaysWhoReadsADatabase) {
  for (const mode_t mask : {077, 022}) {
    const mode_t before = umask(mask);
    Write({MakeDatum(1, 2, 2, 7)});
    EXPECT_EQ(umask(before), mask);
    EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0777 & ~mask));
  }
}

TEST_F(CaffeDatasetTest, NoDatabase) {
  EXPECT_THAT(ReadError(0), HasSubstr(": no LMDB database here"));
  directory_.Write("db/data.mdb", "");
  EXPECT_THAT(ReadError(0), HasSubstr("opening"));
  directory_.Write("db/data.mdb", std::string(100000, 'x'));
  EXPECT_THAT(ReadError(0), HasSubstr("opening: MDB_INVALID"));
  Write({});
  EXPECT_THAT(ReadError(0), HasSubstr("the database has no records"));
}

// Whoever is told that there is none makes one.
TEST_F(CaffeDatasetTest, ADatabaseThatCannotBeLookedAtMayBeThere) {
  fs::create_symlink("db", path_);
  EXPECT_EQ(MessageOf<DataError>([&] { const Dataset dataset(path_); }),
            "can't read " + path_ + "/data.mdb: Too many levels of symbolic links");
  fs::remove(path_);
  directory_.Write("db", "");
  EXPECT_THAT(ReadError(0), HasSubstr(": no LMDB database here"));
}

TEST_F(CaffeDatasetTest, ATruncatedDatabaseIsRefusedWhereverItEnds) {
  std::vector<caffe::Datum> records;
  for (int i = 0; i < 300; ++i) records.push_back(MakeDatum(1, 28, 28, i));
  Write(records);
  const std::string file = path_ + "/data.mdb";
  const auto whole = fs::file_size(file);
  ASSERT_GT(whole, 20 * 4096u);
  for (const uintmax_t length : {whole - 1, whole - 4096, whole / 2, uintmax_t{3 * 4096}}) {
    fs::resize_file(file, length);
    EXPECT_EQ(ReadError(0), "/data.mdb: truncated: its header says " + std::to_string(whole) +
                                " bytes, the file has " + std::to_string(length) +
                                "; make or copy it anew");
  }
  // Not even the header.
  for (const uintmax_t length : {4096, 1000, 16, 0}) {
    fs::resize_file(file, length);
    EXPECT_NE(ReadError(0), "") << length;
  }
}

TEST_F(CaffeDatasetTest, RecordsThatCannotBeUsed) {
  const caffe::Datum good = MakeDatum(1, 2, 3, 0);
  const auto error_of = [&](auto change) {
    caffe::Datum bad = good;
    change(bad);
    Write({good, bad});
    return ReadError(1);
  };
  const std::string where = ": record 1 (key \"00000001\"): ";
  EXPECT_EQ(error_of([](auto& datum) { datum.set_height(4); }),
            where + "has 6 values, which is not 1 x 4 x 3");
  EXPECT_EQ(error_of([](auto& datum) { datum.mutable_data()->pop_back(); }),
            where + "has 5 values, which is not 1 x 2 x 3");
  EXPECT_EQ(error_of([](auto& datum) {
              datum.set_channels(1 << 30);
              datum.set_height(1 << 30);
              datum.set_width(1 << 30);
            }),
            where + "has 6 values, which is not 1073741824 x 1073741824 x 1073741824");
  EXPECT_EQ(error_of([](auto& datum) {
              datum.set_encoded(true);
              datum.clear_data();
            }),
            where + "is encoded, but has no data");
  EXPECT_EQ(error_of([](auto& datum) { datum.add_float_data(1); }),
            where + "has both data and float_data");
  EXPECT_THAT(ReadError(2), HasSubstr("there is no record 2; it has 2"));
}

// A truncated or overwritten page must not lead LMDB out of the file.
TEST_F(CaffeDatasetTest, DamageInPagesIsAnError) {
  std::vector<caffe::Datum> records;
  for (int i = 0; i < 400; ++i) records.push_back(MakeDatum(1, i % 7 == 0 ? 60 : 4, 60, i));
  Write(records);
  const std::string file = path_ + "/data.mdb";
  std::string whole;
  {
    std::ifstream stream(file, std::ios::binary);
    whole.assign(std::istreambuf_iterator<char>(stream), {});
  }
  constexpr size_t kPage = 4096;
  std::vector<size_t>
      trees;  // pages of the header and the tree, by LMDB's flags; the rest is values
  for (size_t page = 0; page < whole.size() / kPage; ++page) {
    if (std::string("\1\2\x8").find(whole[page * kPage + 10]) != std::string::npos) {
      trees.push_back(page);
    }
  }
  ASSERT_GT(trees.size(), 10u);
  std::mt19937 random(5);
  int refused = 0;
  constexpr int kDamages = 400;
  for (int n = 0; n < kDamages; ++n) {
    std::string damaged = whole;
    const size_t page = trees[random() % trees.size()];
    const size_t reach = n % 2 == 0 ? 200 : kPage;  // a page's header and offsets come first
    for (unsigned i = 0; i < 1 + random() % 8; ++i) {
      damaged[page * kPage + random() % reach] = static_cast<char>(random());
    }
    directory_.Write("db/data.mdb", damaged);
    refused += MessageOf<DataError>([&] {
                 const Dataset dataset(path_);
                 for (int64_t i = 0; i < dataset.size(); ++i) dataset.Read(i);
               }) != "";
  }
  // The others hit pixels, keys or free space.
  EXPECT_GT(refused, kDamages / 3);
}

TEST_F(CaffeDatasetTest, TheFirstRecordIsReadWithoutTheOthers) {
  std::vector<caffe::Datum> records;
  for (int i = 0; i < 3000; ++i) records.push_back(MakeDatum(2, 5, 3, i));
  Write(records);
  const Dataset first(path_, caffe::DataParameter::LMDB, Records::kFirst);
  EXPECT_EQ(first.size(), 1);
  EXPECT_EQ(first.Read(0).SerializeAsString(), records[0].SerializeAsString());
  EXPECT_THAT(first.record_shape(), ElementsAre(2, 5, 3));
}

TEST_F(CaffeDatasetTest, AFirstRecordThatCannotBeUsedIsFoundOnOpening) {
  Write({MakeDatum(1, 0, 3, 0)});
  EXPECT_THAT(ReadError(0), HasSubstr("record 0 (key \"00000000\"): is 1 x 0 x 3"));
}

TEST_F(CaffeDatasetTest, CorruptBytesOfARecordAreNoDatum) {
  std::vector<caffe::Datum> records;
  for (int i = 0; i < 3; ++i) records.push_back(MakeDatum(3, 50, 50, i));
  Write(records);
  // A record's bytes start on a page of their own, after 16 of LMDB's.
  std::fstream file(path_ + "/data.mdb", std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes(fs::file_size(path_ + "/data.mdb"), '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const size_t at = bytes.find(records[1].SerializeAsString());
  ASSERT_NE(at, std::string::npos);
  file.seekp(static_cast<std::streamoff>(at));
  file << std::string(20, '\xff');
  file.close();
  EXPECT_EQ(ReadError(1), ": record 1 (key \"00000001\"): is no Datum");
  EXPECT_EQ(Dataset(path_).Read(2).label(), 2);
}

TEST_F(CaffeDatasetTest, FloatData) {
  caffe::Datum datum;
  datum.set_channels(2);
  datum.set_height(1);
  datum.set_width(1);
  datum.set_label(1);
  datum.add_float_data(0.5);
  datum.add_float_data(-3);
  Write({datum});
  EXPECT_EQ(Dataset(path_).Read(0).float_data(1), -3);
}

}  // namespace
}  // namespace poseidon
