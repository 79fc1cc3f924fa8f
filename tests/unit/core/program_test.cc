#include "core/program.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace poseidon {
namespace {

constexpr int kInterruptedCode = static_cast<int>(ExitCode::kInterrupted);

// In processes of their own, as they end.
TEST(ProgramDeathTest, ASignalBeforeTheWorkBeginsEndsWithTheDocumentedCode) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          EndOnSignals();
          raise(number);
          _exit(1);
        },
        testing::ExitedWithCode(kInterruptedCode), "");
  }
}

TEST(ProgramDeathTest, RunProgramNeedsNoInterruptionForThat) {
  EXPECT_EXIT(_exit(RunProgram("test", "test",
                               [] {
                                 raise(SIGTERM);
                                 return ExitCode::kSuccess;
                               })),
              testing::ExitedWithCode(kInterruptedCode), "");
}

TEST(ProgramDeathTest, TheFirstSignalIsTheLoopsAndTheSecondEnds) {
  EXPECT_EXIT(
      {
        Interruption interruption;
        if (interruption.Pending()) _exit(1);
        raise(SIGTERM);
        raise(SIGINT);
        if (!interruption.Pending()) _exit(2);
        raise(SIGTERM);
        _exit(3);
      },
      testing::ExitedWithCode(kInterruptedCode), "");
}

TEST(ProgramDeathTest, AnIgnoredHangupStaysIgnored) {
  EXPECT_EXIT(
      {
        signal(SIGHUP, SIG_IGN);
        EndOnSignals();
        raise(SIGHUP);
        Interruption interruption;
        raise(SIGHUP);
        _exit(interruption.Pending() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace poseidon
