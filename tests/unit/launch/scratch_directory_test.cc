// Where files go that nobody needs afterwards, and what is said where there is no room for them.
#include "launch/scratch_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

class ScratchDirectoryTest : public testing::Test {
 protected:
  ScratchDirectoryTest() {
    if (const char* const before = getenv("TMPDIR")) before_ = before;
    setenv("TMPDIR", directory_.path().c_str(), 1);
  }
  ~ScratchDirectoryTest() override {
    if (before_) {
      setenv("TMPDIR", before_->c_str(), 1);
    } else {
      unsetenv("TMPDIR");
    }
  }

  const TemporaryDirectory directory_;
  std::optional<std::string> before_;
};

TEST_F(ScratchDirectoryTest, IsGoneAfterwardsWithAllThatIsInIt) {
  {
    const ScratchDirectory scratch;
    EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
    EXPECT_THAT(scratch.path(), HasSubstr(directory_.path() + "/poseidon-scratch-"));
    std::filesystem::create_directories(scratch.path() + "/more");
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(ScratchDirectoryTest, OneThatIsNotThereIsNamed) {
  setenv("TMPDIR", "/there/is/none", 1);
  EXPECT_EQ(MessageOf<ConfigError>([] { const ScratchDirectory scratch; }),
            "there is no directory /there/is/none for temporary files; set TMPDIR to one, or unset "
            "it");
}

TEST_F(ScratchDirectoryTest, OneWithoutRoomIsNamed) {
  // Beyond this limit a write fails, once the signal is ignored.
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  rlimit limit = usual;
  limit.rlim_cur = 0;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const std::string said = MessageOf<Error>([] { const ScratchDirectory scratch; });
  setrlimit(RLIMIT_FSIZE, &usual);
  signal(SIGXFSZ, before);
  EXPECT_THAT(said, HasSubstr("can't write " + directory_.path() + "/poseidon-scratch-"));
  EXPECT_THAT(said, HasSubstr(": File too large; make room there, or set TMPDIR to another"));
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

}  // namespace
}  // namespace poseidon
