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

TEST(ProgramDeathTest, ASignalThatAsksForSomethingEndsNothing) {
  EXPECT_EXIT(
      {
        Interruption interruption({SignalEffect::kSnapshot, SignalEffect::kNone});
        if (interruption.TakeRequest()) _exit(1);
        for (int round = 0; round < 2; ++round) {
          raise(SIGINT);
          raise(SIGHUP);
          const auto request = interruption.TakeRequest();
          if (!request || request->signal != SIGINT) _exit(2);
          if (request->effect != SignalEffect::kSnapshot) _exit(3);
          if (interruption.TakeRequest()) _exit(4);
        }
        if (interruption.Pending()) _exit(5);
        raise(SIGTERM);
        _exit(interruption.Pending() ? 0 : 6);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ProgramDeathTest, AfterAStopTheNextSignalIsAnInterruption) {
  EXPECT_EXIT(
      {
        Interruption interruption({SignalEffect::kStop, SignalEffect::kStop});
        raise(SIGHUP);
        const auto request = interruption.TakeRequest();
        if (!request || request->effect != SignalEffect::kStop) _exit(1);
        if (interruption.Pending()) _exit(2);
        raise(SIGINT);
        if (interruption.TakeRequest() || !interruption.Pending()) _exit(3);
        raise(SIGINT);
        _exit(4);
      },
      testing::ExitedWithCode(kInterruptedCode), "");
}

TEST(SignalEffectTest, OtherWordsAreRefusedWithTheFlag) {
  EXPECT_EQ(ParseSignalEffect("sigint_effect", "stop"), SignalEffect::kStop);
  EXPECT_THROW(
      {
        try {
          ParseSignalEffect("sigint_effect", "stopp");
        } catch (const ConfigError& error) {
          EXPECT_STREQ(error.what(),
                       "--sigint_effect is \"stopp\"; it must be snapshot, stop, none or end");
          throw;
        }
      },
      ConfigError);
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
