#include "core/files/regular_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

std::string Refusal(const std::string& path) {
  const std::string read =
      MessageOf<DataError>([&path] { ReadRegularFile(path, ExitCode::kDataError); });
  EXPECT_EQ(MessageOf<DataError>([&path] { CheckRegularFile(path, ExitCode::kDataError); }), read);
  return read;
}

TEST(RegularFile, IsReadWhole) {
  const TemporaryDirectory directory;
  const std::string content("a\0\nb", 4);
  const std::string path = directory.Write("file", content);
  EXPECT_EQ(CheckRegularFile(path, ExitCode::kDataError), 4);
  EXPECT_EQ(ReadRegularFile(path, ExitCode::kDataError), content);
  EXPECT_EQ(ReadRegularFile(directory.Write("empty", ""), ExitCode::kDataError), "");
}

// None of these may be opened and read without a look at it: the first waits for a writer, the
// others have no end.
TEST(RegularFile, PipesDevicesAndTheKernelsFilesAreRefused) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Refusal(pipe), "can't read " + pipe +
                               ": it is a pipe, and only regular files are read; write what it "
                               "gives to one");
  EXPECT_EQ(Refusal("/dev/zero"),
            "can't read /dev/zero: it is a device, and only regular files are read; write what it "
            "gives to one");
  EXPECT_EQ(Refusal("/proc/version"),
            "can't read /proc/version: it has content but no size, as files of the kernel's have; "
            "copy it to a file");
}

TEST(RegularFile, DirectoriesAndMissingFilesAreNamed) {
  const TemporaryDirectory directory;
  EXPECT_EQ(Refusal(directory.path()),
            "can't read " + directory.path() + ": it is a directory; name a file");
  const std::string missing = directory.Path("missing");
  EXPECT_EQ(Refusal(missing), "can't read " + missing + ": No such file or directory");
  const std::string loop = directory.Path("loop");
  std::filesystem::create_symlink(loop, loop);
  EXPECT_EQ(Refusal(loop), "can't read " + loop + ": Too many levels of symbolic links");
  EXPECT_NE(MessageOf<ConfigError>([&loop] { CheckRegularFile(loop, ExitCode::kConfigError); }),
            "");
}

// Data may be on a disk or a file server that has failed for a moment: a job is to be run again.
TEST(RegularFile, WhatMayPassIsNoFaultOfTheFiles) {
  // The first page of a process has no memory, so reading it is an error of input and output.
  const auto code_of = [](const std::function<void()>& read) {
    try {
      read();
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(),
                   "can't read /proc/self/mem: Input/output error; this may pass, so try again");
      return error.exit_code();
    }
    return ExitCode::kSuccess;
  };
  EXPECT_EQ(code_of([] { ReadRegularFile("/proc/self/mem", ExitCode::kDataError); }),
            ExitCode::kFailure);
  EXPECT_EQ(code_of([] { CheckRegularFile("/proc/self/mem", ExitCode::kConfigError); }),
            ExitCode::kFailure);
}

TEST(RegularFile, AFileThatIsTooLargeIsNotRead) {
  const TemporaryDirectory directory;
  const std::string path = directory.Write("file", "");
  std::filesystem::resize_file(path, kMostTextBytes + 1);  // a hole takes no room
  EXPECT_EQ(MessageOf<ConfigError>([&path] { ReadRegularFile(path, ExitCode::kConfigError); }),
            "can't read " + path + ": it has 67108865 bytes; such a file has at most 67108864");
  EXPECT_EQ(CheckRegularFile(path, ExitCode::kConfigError), kMostTextBytes + 1);
}

}  // namespace
}  // namespace poseidon
