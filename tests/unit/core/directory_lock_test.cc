#include "core/files/directory_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

std::string RefusalOf(const std::string& directory) {
  try {
    const DirectoryLock lock(directory, "a second job");
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(DirectoryLockTest, TheSecondIsToldWhoHoldsIt) {
  const TemporaryDirectory directory;
  auto lock = std::make_unique<DirectoryLock>(directory.path(), "the job \"lenet\"");
  const std::string refusal = RefusalOf(directory.path());
  EXPECT_THAT(refusal, HasSubstr(directory.path() + " is in use by the job \"lenet\", process " +
                                 std::to_string(getpid())));
  lock.reset();
  EXPECT_EQ(RefusalOf(directory.path()), "");
}

TEST(DirectoryLockTest, EndsWithItsProcess) {
  const TemporaryDirectory directory;
  const pid_t child = fork();
  if (child == 0) {
    new DirectoryLock(directory.path(), "a job that is killed");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(RefusalOf(directory.path()), "");
}

TEST(DirectoryLockTest, SaysWhatCantBeWritten) {
  const TemporaryDirectory directory;
  try {
    const DirectoryLock lock(directory.Path("none"), "a job");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kFailure);
    EXPECT_THAT(error.what(), HasSubstr("none/lock: No such file or directory"));
  }
}

}  // namespace
}  // namespace poseidon
