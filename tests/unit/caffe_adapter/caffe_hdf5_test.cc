// The HDF5Data layer.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <iostream>

#include "caffe_adapter/files/hdf5_file.h"
#include "core/error.h"
#include "tests/unit/caffe_adapter/sample_testing.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// An HDF5 file with datasets of its own making.
class Writer {
 public:
  explicit Writer(const std::string& path)
      : file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~Writer() { H5Fclose(file_); }

  template <typename Value>
  void Add(const std::string& name, const std::vector<hsize_t>& shape,
           const std::vector<Value>& values, hid_t type) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t dataset =
        H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    H5Dclose(dataset);
    H5Sclose(space);
  }

 private:
  hid_t file_;
};

class CaffeHdf5Test : public testing::Test {
 protected:
  // Rows first..first + rows - 1: row r has the data r, r + 0.5 and the label 2 r.
  std::string WriteRows(const std::string& name, int first, int rows) const {
    std::vector<float> data;
    std::vector<int> labels;
    for (int row = first; row < first + rows; ++row) {
      data.push_back(static_cast<float>(row));
      data.push_back(static_cast<float>(row) + 0.5F);
      labels.push_back(2 * row);
    }
    Writer writer(directory_.Path(name));
    const auto count = static_cast<hsize_t>(rows);
    writer.Add("data", {count, 1, 2}, data, H5T_NATIVE_FLOAT);
    writer.Add("label", {count}, labels, H5T_NATIVE_INT);
    return directory_.Path(name);
  }

  std::string Layer(const std::string& files) const {
    return "hdf5_data_param { source: '" + directory_.Write("list", files) + "' batch_size: 5 }";
  }

  std::string OpenError(const std::string& files, int tops = 2) const {
    return MessageOf<DataError>([&] { SourceUnderTest("HDF5Data", tops, Layer(files)); });
  }

  TemporaryDirectory directory_;
};

TEST_F(CaffeHdf5Test, RowsOfAllFilesInOrder) {
  const std::string a = WriteRows("a.h5", 0, 3);
  const std::string b = WriteRows("b.h5", 3, 4);
  const std::string c = WriteRows("c.h5", 7, 1);
  const SourceUnderTest source("HDF5Data", 2, Layer(a + "\n" + b + " " + c + "\n"));
  EXPECT_EQ(source.layer().tops[0].shape, (Shape{5, 1, 2}));
  EXPECT_EQ(source.layer().tops[1].shape, (Shape{5}));
  EXPECT_EQ(source.source().records().records, 8);
  EXPECT_THAT(source.source().records().files, ElementsAre(3, 4, 1));
  for (const int64_t row : {0, 2, 3, 6, 7, 1, 5}) {
    const auto sample = source.Read(row);
    EXPECT_THAT(sample[0], ElementsAre(row, static_cast<float>(row) + 0.5F));
    EXPECT_THAT(sample[1], ElementsAre(2 * row));
  }
  EXPECT_EQ(source.source().Describe(5), "row 2 of " + b);
}

TEST_F(CaffeHdf5Test, BadFiles) {
  const std::string a = WriteRows("a.h5", 0, 3);
  EXPECT_EQ(OpenError(a, 3), a + ": has no dataset \"top2\"");
  EXPECT_EQ(OpenError("\n"), directory_.Path("list") + ": lists no HDF5 files");
  EXPECT_THAT(OpenError("no/such.h5"), HasSubstr("can't read no/such.h5: No such file"));
  EXPECT_THAT(OpenError(directory_.Write("x.h5", "hello")), HasSubstr("x.h5: is no HDF5 file"));
  {
    Writer writer(directory_.Path("b.h5"));
    writer.Add<float>("data", {2, 1, 2}, {1, 2, 3, 4}, H5T_NATIVE_FLOAT);
    writer.Add<float>("label", {3}, {1, 2, 3}, H5T_NATIVE_FLOAT);
  }
  EXPECT_THAT(OpenError(directory_.Path("b.h5")),
              HasSubstr("b.h5: dataset \"label\" has 3 rows; expected 2, those of \"data\""));
  {
    Writer writer(directory_.Path("c.h5"));
    writer.Add<float>("data", {2, 2}, {1, 2, 3, 4}, H5T_NATIVE_FLOAT);
    writer.Add<float>("label", {2}, {1, 2}, H5T_NATIVE_FLOAT);
  }
  EXPECT_THAT(OpenError(a + " " + directory_.Path("c.h5")),
              HasSubstr("c.h5: dataset \"data\" has rows of 2, but 1 x 2 in " + a));
  EXPECT_THAT(MessageOf<ConfigError>([&] {
                SourceUnderTest("HDF5Data", 2, Layer(a) + " transform_param { scale: 2 }");
              }),
              HasSubstr("what HDF5 files hold is not transformed"));
}

TEST_F(CaffeHdf5Test, AFileThatHasChangedIsRefused) {
  const std::string a = WriteRows("a.h5", 0, 3);
  const std::string b = WriteRows("b.h5", 3, 4);
  const SourceUnderTest source("HDF5Data", 2, Layer(a + " " + b));
  EXPECT_THAT(source.Read(0)[1], ElementsAre(0));
  const auto read = [&] { return MessageOf<DataError>([&] { source.Read(6); }); };
  const auto changed = [&](const std::string& shapes) {
    return b + ": has changed since the job began: dataset " + shapes + "; start the job again";
  };
  WriteRows("b.h5", 3, 2);
  EXPECT_EQ(read(), changed("\"data\" is 2 x 1 x 2, it was 4 x 1 x 2"));
  {
    Writer writer(b);
    writer.Add<float>("data", {4, 1, 1}, {1, 2, 3, 4}, H5T_NATIVE_FLOAT);
    writer.Add<float>("label", {4}, {1, 2, 3, 4}, H5T_NATIVE_FLOAT);
  }
  EXPECT_EQ(read(), changed("\"data\" is 4 x 1 x 1, it was 4 x 1 x 2"));
  WriteRows("b.h5", 3, 4);
  EXPECT_EQ(read(), "");
}

// As on a file system that knows no locks, or beside whoever has locked the file to write to it.
TEST_F(CaffeHdf5Test, AFileThatIsLockedIsReadNevertheless) {
  const std::string path = WriteRows("a.h5", 0, 3);
  const int file = open(path.c_str(), O_RDONLY);
  ASSERT_EQ(flock(file, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(OpenError(path), "");
  close(file);
}

TEST_F(CaffeHdf5Test, ATruncatedFileIsRefusedWhereverItEnds) {
  const std::string path = WriteRows("a.h5", 0, 3000);
  const auto whole = std::filesystem::file_size(path);
  for (const uintmax_t length : {whole - 1, whole / 2, uintmax_t{600}, uintmax_t{8}}) {
    std::filesystem::resize_file(path, length);
    EXPECT_EQ(OpenError(path), path + ": is no HDF5 file or is truncated or corrupt");
  }
}

// The library says only that it has not found what is asked for, be it a name, which then was taken
// for one that the file has not.
TEST(CaffeHdf5DeathTest, WhatCanNotBeReadForAMomentIsNotTakenForWhatIsNotThere) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("a.h5");
  {
    Writer writer(path);
    writer.Add<float>("data", {2}, {1, 2}, H5T_NATIVE_FLOAT);
  }
  const std::vector<std::function<void(const Hdf5File&)>> reads = {
      [](const Hdf5File& file) { file.Has("data"); },
      [](const Hdf5File& file) { file.Read("data"); },
      [](const Hdf5File& file) { file.ReadInteger("data"); }};
  const auto end_by = [&path](const std::function<void(const Hdf5File&)>& read) {
    try {
      const Hdf5File file(path);
      BreakCall({.number = SYS_pread64, .error = EIO});
      read(file);
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  for (const auto& read : reads) {
    EXPECT_EXIT(end_by(read), testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
                "can't read " + path + ": Input/output error; this may pass, so try again");
  }
}

}  // namespace
}  // namespace poseidon
