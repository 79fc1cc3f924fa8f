#include "core/end_deadline.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
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

// That limit is none for root.
TEST(EndDeadlineDeathTest, WithoutAThreadItThrowsNothingAndTheNextCallCounts) {
  constexpr uid_t kNobody = 65534;
  const auto hang = [] {
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(9);
    rlimit usual{};
    getrlimit(RLIMIT_NPROC, &usual);
    const rlimit none = {0, usual.rlim_max};
    EndDeadline deadline("test", kSoon);
    setrlimit(RLIMIT_NPROC, &none);
    deadline.Start(Error(ExitCode::kPeerLost, "lost worker 1"));
    setrlimit(RLIMIT_NPROC, &usual);
    deadline.Start(Error(ExitCode::kPeerLost, "lost worker 2"));
    pause();
  };
  EXPECT_EXIT(hang(), testing::ExitedWithCode(kPeerLostCode),
              "test can't be ended if it hangs, .*: Resource temporarily unavailable(.|\n)*"
              "test: lost worker 2; ");
}

}  // namespace
}  // namespace poseidon
