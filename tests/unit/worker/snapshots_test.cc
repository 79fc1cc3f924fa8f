// Whether snapshots can be written, before the training.
#include "worker/snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "caffe_adapter/files/hdf5_file.h"
#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const SnapshotOptions& options) {
  return MessageOf<Error>([&] { Snapshots(options).CheckWritable(); });
}

TEST(SnapshotsTest, APlaceThatCanBeWrittenToIsMadeAndLeftEmpty) {
  const TemporaryDirectory directory;
  EXPECT_EQ(ErrorOf({.prefix = directory.Path("new/x"), .interval = 7}), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.Path("new")));
}

// Nobody, not even root, makes a file below a file.
TEST(SnapshotsTest, APlaceThatCannotIsFoundOutAtOnce) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Write("file", "") + "/x";
  for (const SnapshotOptions& options :
       {SnapshotOptions{.prefix = prefix, .interval = 7, .after_train = false},
        SnapshotOptions{.prefix = prefix}}) {
    EXPECT_THAT(ErrorOf(options), HasSubstr("no snapshots can be written with snapshot_prefix \"" +
                                            prefix + "\": can't create " + prefix));
  }
  EXPECT_EQ(ErrorOf({.prefix = prefix, .after_train = false}), "") << "none will be";
  EXPECT_EQ(ErrorOf({}), "");
}

TEST(SnapshotsTest, AFormatThatTheBuildLacksIsFoundOutAtOnce) {
  const TemporaryDirectory directory;
  const std::string error = ErrorOf({.prefix = directory.Path("x"), .hdf5 = true});
  EXPECT_EQ(error.empty(), HasHdf5()) << error;
}

}  // namespace
}  // namespace poseidon
