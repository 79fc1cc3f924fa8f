#include "core/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <thread>

#include "core/atomic_file.h"
#include "core/process/bounded_output.h"
#include "core/process/unfinished_file.h"
#include "tests/unit/temporary_directory.h"

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

// What a program shows may be what it is for, or only tell how far it is.
TEST(ProgramDeathTest, OutputThatCanNotBeWrittenIsAFailureUnlessItIsProgress) {
  const auto code = [](bool is_progress) {
    if (freopen("/dev/full", "w", stdout) == nullptr) return -1;
    return RunProgram("test", "test", [is_progress] {
      std::optional<BoundedOutput> progress;
      if (is_progress) progress.emplace(std::cout, STDOUT_FILENO);
      std::cout << "iteration 1" << std::endl;
      return ExitCode::kSuccess;
    });
  };
  const std::string message = "can't write to standard output: ";
  EXPECT_EXIT(_exit(code(false)), testing::ExitedWithCode(1), message + "No space left on device");
  EXPECT_EXIT(_exit(code(true)), testing::ExitedWithCode(0),
              message + "12 bytes were not written: No space left on device; this goes on");
}

// Two threads write one file after the other, and a signal comes at some moment.
TEST(ProgramDeathTest, ASignalLeavesNoHalfWrittenFile) {
  for (int round = 0; round < 30; ++round) {
    const TemporaryDirectory directory;
    EXPECT_EXIT(
        {
          EndOnSignals();
          std::atomic<int> written{0};
          const auto write = [&](const std::string& name) {
            while (true) {
              WriteFileAtomically(directory.Path(name), std::string(100'000, 'x'));
              ++written;
            }
          };
          std::thread first(write, "first");
          std::thread second(write, "second");
          while (written < 2 + round % 5) std::this_thread::yield();
          kill(getpid(), SIGTERM);
          first.join();
        },
        testing::ExitedWithCode(kInterruptedCode), "");
    for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
      EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("first", "second"));
      EXPECT_EQ(entry.file_size(), 100'000u);
    }
  }
}

TEST(ProgramDeathTest, ASignalRemovesUnfinishedDirectoriesWithTheirFiles) {
  const TemporaryDirectory parent;
  const std::string directory = parent.Path("data.XXXX");
  EXPECT_EXIT(
      {
        EndOnSignals();
        const UnfinishedFile unfinished([&] {
          std::filesystem::create_directory(directory);
          return directory;
        });
        const UnfinishedFile inside([&] { return parent.Write("data.XXXX/data.mdb", "half"); });
        const UnfinishedFile gone([&] { return parent.Path("gone"); });
        raise(SIGINT);
      },
      testing::ExitedWithCode(kInterruptedCode), "");
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST(ProgramDeathTest, ASignalRemovesWhatADirectoryWasExchangedWith) {
  const TemporaryDirectory parent;
  const std::string directory = parent.Path("data.XXXX");
  parent.Write("data.XXXX/data.mdb", "new");
  parent.Write("data/data.mdb", "old one");
  EXPECT_EXIT(
      {
        EndOnSignals();
        UnfinishedFile unfinished([&] { return directory; });
        const UnfinishedFile inside([&] { return directory + "/data.mdb"; });
        const int error = unfinished.ExchangeWith(parent.Path("data"));
        if (error == EINVAL || error == ENOSYS) {  // not on this file system
          std::filesystem::remove_all(parent.Path("data"));
          std::filesystem::rename(directory, parent.Path("data"));
        } else if (error != 0) {
          _exit(1);
        }
        raise(SIGINT);
      },
      testing::ExitedWithCode(kInterruptedCode), "");
  EXPECT_FALSE(std::filesystem::exists(directory));
  EXPECT_EQ(std::filesystem::file_size(parent.Path("data/data.mdb")), 3u);
}

// As one that another thread opens on a file server which has gone.
TEST(ProgramDeathTest, ASignalEndsAlsoWhereAFileIsBeingMadeForever) {
  EXPECT_EXIT(
      {
        EndOnSignals();
        std::atomic<bool> making{false};
        std::thread maker([&making] {
          const UnfinishedFile file([&making] {
            making = true;
            while (true) pause();
            return std::string();
          });
        });
        while (!making) std::this_thread::yield();
        kill(getpid(), SIGTERM);
        maker.join();
      },
      testing::ExitedWithCode(kInterruptedCode), "");
}

TEST(ProgramDeathTest, TheFirstSignalIsTheLoopsAndTheSecondEnds) {
  EXPECT_EXIT(
      {
        Interruption interruption;
        if (interruption.Pending() || interruption.Asked()) _exit(1);
        raise(SIGTERM);
        raise(SIGINT);
        if (!interruption.Asked()) _exit(4);
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
        if (interruption.Pending() || interruption.Asked()) _exit(5);
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

// As the thread that is to ask reads from a disk which does not answer.
TEST(ProgramDeathTest, TheSecondSignalEndsWhoDoesNotAsk) {
  for (const SignalEffect effect : {SignalEffect::kEnd, SignalEffect::kStop}) {
    EXPECT_EXIT(
        {
          const Interruption interruption({.sigint = effect}, Duration::zero());
          raise(SIGINT);
          raise(SIGINT);
          _exit(1);
        },
        testing::ExitedWithCode(kInterruptedCode), "");
  }
}

// As by Ctrl-C and then by kill, or as `poseidon keep` passes two of them on.
TEST(ProgramDeathTest, TheSecondSignalEndsWhoDoesNotAskAlsoIfItIsOfAnotherKind) {
  for (const int second : {SIGINT, SIGHUP}) {
    EXPECT_EXIT(
        {
          const Interruption interruption({.sigterm = SignalEffect::kStop}, Duration::zero());
          raise(SIGTERM);
          raise(second);
          _exit(1);
        },
        testing::ExitedWithCode(kInterruptedCode), "");
  }
}

TEST(ProgramDeathTest, ASignalThatAsksForASnapshotIsNoFirstOne) {
  EXPECT_EXIT(
      {
        Interruption interruption({.sighup = SignalEffect::kSnapshot}, Duration::zero());
        raise(SIGHUP);
        raise(SIGINT);
        raise(SIGHUP);
        _exit(interruption.TakeRequest() && interruption.Pending() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ProgramDeathTest, TwoSignalsRightAfterEachOtherAreOne) {
  EXPECT_EXIT(
      {
        Interruption interruption({}, Seconds(1e6));
        for (int i = 0; i < 3; ++i) raise(SIGTERM);
        _exit(interruption.Pending() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ProgramDeathTest, ASignalThatNobodyAsksForEndsNothingIfItIsNotToEndTheProgram) {
  EXPECT_EXIT(
      {
        Interruption interruption({SignalEffect::kSnapshot, SignalEffect::kNone}, Duration::zero());
        for (int i = 0; i < 3; ++i) {
          raise(SIGINT);
          raise(SIGHUP);
        }
        _exit(interruption.TakeRequest() && !interruption.Pending() ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ProgramDeathTest, AStopThatWasTakenIsNoFirstSignal) {
  EXPECT_EXIT(
      {
        Interruption interruption({.sigint = SignalEffect::kStop}, Duration::zero());
        raise(SIGINT);
        if (!interruption.TakeRequest()) _exit(1);
        raise(SIGINT);
        _exit(0);
      },
      testing::ExitedWithCode(0), "");
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
