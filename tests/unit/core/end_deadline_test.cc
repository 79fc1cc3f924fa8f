#include "core/end_deadline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "core/process/unfinished_file.h"

namespace poseidon {
namespace {

constexpr Duration kSoon = std::chrono::milliseconds(20);
constexpr int kPeerLostCode = static_cast<int>(ExitCode::kPeerLost);

// In processes of their own, as they end.
TEST(EndDeadlineDeathTest, WhoeverHangsIsEndedAndSaysWhy) {
  EXPECT_EXIT(
      {
        EndDeadline deadline("test", kSoon);
        deadline.Start(Error(ExitCode::kPeerLost, "lost worker 1"));
        deadline.Start(Error(ExitCode::kFailure, "and worker 2"));
        pause();
      },
      testing::ExitedWithCode(kPeerLostCode),
      "^test: lost worker 1; this process was told so 20ms ago and hangs, so it is ended\n$");
}

// As one that writes to a file server which has gone.
TEST(EndDeadlineDeathTest, WhoeverHangsInMakingAFileIsEndedToo) {
  EXPECT_EXIT(
      {
        EndDeadline deadline("test", kSoon);
        deadline.Start(Error(ExitCode::kPeerLost, "lost worker 1"));
        UnfinishedFile file([] {
          while (true) pause();
          return std::string();
        });
      },
      testing::ExitedWithCode(kPeerLostCode), "^test: lost worker 1; ");
}

TEST(EndDeadlineDeathTest, WhoeverEndsInTimeDoesSoByItself) {
  EXPECT_EXIT(
      {
        {
          EndDeadline deadline("test", kSoon);
          deadline.Start(Error(ExitCode::kPeerLost, "lost worker 1"));
        }
        std::this_thread::sleep_for(5 * kSoon);
        _exit(7);
      },
      testing::ExitedWithCode(7), "^$");
}

TEST(EndDeadlineDeathTest, NobodyIsEndedWhoWasNotTold) {
  EXPECT_EXIT(
      {
        const EndDeadline deadline("test", kSoon);
        std::this_thread::sleep_for(5 * kSoon);
        _exit(7);
      },
      testing::ExitedWithCode(7), "^$");
}

}  // namespace
}  // namespace poseidon
