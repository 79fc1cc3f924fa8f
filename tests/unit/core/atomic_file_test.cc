#include "core/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

std::string ContentOf(const std::string& path) {
  return ReadRegularFile(path, ExitCode::kDataError);
}

// A rename would put a file in the place of the pipe, or of a device.
TEST(AtomicFile, WhatIsNoRegularFileIsNotReplaced) {
  const TemporaryDirectory directory;
  const std::string pipe = directory.Path("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const std::string link = directory.Path("link");
  std::filesystem::create_symlink(pipe, link);
  for (const std::string& path : {pipe, link}) {
    EXPECT_EQ(MessageOf<ConfigError>([&path] { WriteFileAtomically(path, "new"); }),
              "can't write " + path + ": it is a device, a pipe or a socket; name a regular file");
    EXPECT_TRUE(std::filesystem::is_fifo(path));
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  const std::string folder = directory.Path("folder");
  std::filesystem::create_directory(folder);
  EXPECT_EQ(MessageOf<ConfigError>([&folder] { WriteFileAtomically(folder, "new"); }),
            "can't write " + folder + ": it is a directory; name a file");
}

// Before hours go into what is to be written.
TEST(AtomicFile, WhetherItCanBeWrittenIsSeenBefore) {
  const TemporaryDirectory directory;
  const std::string old = directory.Write("old", "old");
  for (const std::string& path : {old, directory.Path("new")}) CheckCanWrite(path);
  EXPECT_EQ(ContentOf(old), "old");
  const auto files = std::filesystem::directory_iterator(directory.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "nothing else is left there";
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckCanWrite(directory.path()); }),
            "can't write " + directory.path() + ": it is a directory; name a file");
  const std::string nowhere = directory.Path("nowhere/new");
  EXPECT_EQ(MessageOf<Error>([&] { CheckCanWrite(nowhere); }).find("can't create " + nowhere), 0);
}

TEST(AtomicFile, ALinkStaysAndItsFileIsReplaced) {
  const TemporaryDirectory directory;
  const std::string file = directory.Write("file", "old");
  const std::string link = directory.Path("link");
  std::filesystem::create_symlink("file", link);
  WriteFileAtomically(link, "new");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ContentOf(file), "new");
  EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(file)));
}

TEST(AtomicFile, ALinkToAFileThatIsNotThereYetStays) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("second", directory.Path("first"));
  std::filesystem::create_symlink("gone/file", directory.Path("second"));
  EXPECT_THAT(MessageOf<Error>([&] { WriteFileAtomically(directory.Path("first"), "new"); }),
              testing::HasSubstr("can't create " + directory.Path("gone/file")));
  std::filesystem::create_directory(directory.Path("gone"));
  WriteFileAtomically(directory.Path("first"), "new");
  EXPECT_EQ(ContentOf(directory.Path("gone/file")), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(directory.Path("first")));
}

TEST(AtomicFile, ALinkToADirectoryThatIsNotThereYetIsNotMadeAFile) {
  const TemporaryDirectory directory;
  std::filesystem::create_symlink("results/", directory.Path("link"));
  EXPECT_THAT(MessageOf<Error>([&] { WriteFileAtomically(directory.Path("link"), "new"); }),
              testing::HasSubstr("can't create " + directory.Path("results/")));
  EXPECT_FALSE(std::filesystem::exists(directory.Path("results")));
}

// A umask takes permissions; a group that shares a directory replaces the file, and does not write
// into it. A secret is its owner's.
TEST(AtomicFile, TheUmaskSaysWhoReadsIt) {
  const TemporaryDirectory directory;
  const auto mode = [&](const std::string& name) {
    return std::filesystem::status(directory.Path(name)).permissions();
  };
  const mode_t before = umask(0002);
  WriteFileAtomically(directory.Path("atomic"), "text");
  umask(0027);
  WriteFileQuickly(directory.Path("quick"), "text");
  WriteNewPrivateFile(directory.Path("secret"), "text");
  umask(before);
  EXPECT_EQ(mode("atomic"), std::filesystem::perms(0644));
  EXPECT_EQ(mode("quick"), std::filesystem::perms(0640));
  EXPECT_EQ(mode("secret"), std::filesystem::perms(0600));
}

// Nobody, not even root, makes a file there, however often it is tried.
TEST(AtomicFile, AForbiddenPlaceIsTheWrongOneAndNoMatterOfTime) {
  const std::string forbidden = "/sys/file";
  if (!std::filesystem::exists("/sys/kernel")) GTEST_SKIP() << "there is no /sys here";
  for (const auto write : {WriteFileAtomically, WriteFileQuickly}) {
    EXPECT_THAT(MessageOf<ConfigError>([&] { write(forbidden, "new"); }),
                testing::StartsWith("can't create /sys/file.tmp"));
  }
  // One that is gone may come back with its file server.
  const TemporaryDirectory directory;
  try {
    WriteFileAtomically(directory.Path("gone/file"), "new");
    FAIL() << "there is no such directory";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kFailure) << error.what();
  }
}

}  // namespace
}  // namespace poseidon
