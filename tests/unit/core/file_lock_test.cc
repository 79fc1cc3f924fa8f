#include "core/files/file_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

std::string HolderOf(const std::string& path) { return FileLock(path, "a second job").holder(); }

TEST(FileLockTest, TheSecondIsToldWhoHoldsIt) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("lock");
  auto lock = std::make_unique<FileLock>(path, "the job \"lenet\"");
  EXPECT_EQ(lock->holder(), "");
  std::array<char, 256> machine{};
  ASSERT_EQ(gethostname(machine.data(), machine.size() - 1), 0);
  const FileLock second(path, "a second job");
  EXPECT_EQ(second.holder(),
            "the job \"lenet\", process " + std::to_string(getpid()) + " on " + machine.data());
  EXPECT_TRUE(second.is_held_here());
  EXPECT_TRUE(std::filesystem::exists(path)) << "the second has removed it";
  lock.reset();
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(HolderOf(path), "");
}

TEST(FileLockTest, EndsWithItsProcess) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("lock");
  const pid_t child = fork();
  if (child == 0) {
    new FileLock(path, "a job that is killed");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(std::filesystem::exists(path));
  EXPECT_EQ(HolderOf(path), "");
}

// Whoever has it removes the file at its end, while others wait for just that.
TEST(FileLockTest, OneHasItAtATime) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("lock");
  std::atomic<int> owners = 0;
  std::atomic<int> times = 0;
  std::atomic<bool> two_at_once = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (times < 300) {
        const FileLock lock(path, "a thread");
        if (!lock.holder().empty()) continue;
        if (++owners > 1) two_at_once = true;
        ++times;
        std::this_thread::yield();
        --owners;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(two_at_once);
}

// A group that shares a directory has a umask for that.
TEST(FileLockTest, ItsPermissionsAreTheUmasks) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("lock");
  const mode_t before = umask(0002);
  const FileLock lock(path, "a job");
  umask(before);
  struct stat file {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0664u);
}

// Nobody, not even root, makes a file there, however often it is tried.
TEST(FileLockTest, AForbiddenPlaceIsTheWrongOne) {
  if (!std::filesystem::exists("/sys/kernel")) GTEST_SKIP() << "there is no /sys here";
  EXPECT_THAT(MessageOf<ConfigError>([] { const FileLock lock("/sys/lock", "a job"); }),
              HasSubstr("can't write to /sys/lock: "));
}

TEST(FileLockTest, SaysWhatCantBeWritten) {
  const TemporaryDirectory directory;
  try {
    const FileLock lock(directory.Path("none/lock"), "a job");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kFailure);
    EXPECT_THAT(error.what(), HasSubstr("none/lock: No such file or directory"));
  }
}

}  // namespace
}  // namespace poseidon
