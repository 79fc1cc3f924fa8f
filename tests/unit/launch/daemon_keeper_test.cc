#include "launch/daemon_keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <thread>

#include "launch/restart_policy.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::SizeIs;

// Shell scripts in the place of daemons; each process adds a line to a file: its arguments.
class DaemonKeeperTest : public testing::Test {
 protected:
  // "$runs" in the script is how often it has run, with this time.
  ExitStatus Keep(const std::string& script, Interruption* interruption = nullptr) {
    KeepOptions options;
    const std::string lines = directory_.Path("lines");
    options.command = {"/bin/sh", "-c",
                       "echo \"$*\" >> " + lines + "; runs=$(wc -l < " + lines + "); " + script,
                       "daemon"};
    options.says_whom_it_replaces = says_whom_it_replaces_;
    options.interruption = interruption;
    options.say = [this](const std::string& news) {
      said_.push_back(news);
      if (when_said_) when_said_(news);
    };
    return KeepDaemon(options);
  }

  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    std::ifstream file(directory_.Path("lines"));
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }

  // A script that goes on until there is a signal, once it has said that it is there.
  std::string AwaitSignal() const { return "touch " + directory_.Path("here") + "; exec sleep 60"; }

  // Sends this program a signal when the script is there.
  std::thread SendSignal(int signal) const {
    return std::thread([this, signal] {
      while (!std::ifstream(directory_.Path("here"))) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      kill(getpid(), signal);
    });
  }

  TemporaryDirectory directory_;
  bool says_whom_it_replaces_ = true;
  std::vector<std::string> said_;
  std::function<void(const std::string&)> when_said_;
};

std::string IncarnationOf(const std::string& line) {
  const std::string flag = "--incarnation=";
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (word.starts_with(flag)) return word.substr(flag.size());
  }
  return "";
}

TEST_F(DaemonKeeperTest, StartsAgainWhatWasKilledOrGivenUp) {
  const ExitStatus status = Keep("[ $runs = 1 ] && kill -9 $$; [ $runs = 2 ] && exit 8; exit 0");
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(Lines(), SizeIs(3));
  EXPECT_THAT(said_, ElementsAre(MatchesRegex("sh was killed by signal 9 .SIGKILL.; it is started "
                                              "again"),
                                 HasSubstr("sh exited with code 8; it is started again in 0.")));
}

TEST_F(DaemonKeeperTest, EachProcessNamesTheOneBefore) {
  Keep("[ $runs -lt 3 ] && kill -9 $$; exit 0");
  const std::vector<std::string> lines = Lines();
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], testing::Not(HasSubstr("--replaces")));
  for (size_t i = 1; i < lines.size(); ++i) {
    ASSERT_NE(IncarnationOf(lines[i - 1]), "");
    EXPECT_NE(IncarnationOf(lines[i]), IncarnationOf(lines[i - 1]));
    EXPECT_THAT(lines[i], HasSubstr("--replaces=" + IncarnationOf(lines[i - 1])));
  }
}

TEST_F(DaemonKeeperTest, ASchedulerHasItsJournal) {
  says_whom_it_replaces_ = false;
  Keep("[ $runs = 1 ] && kill -9 $$; exit 0");
  EXPECT_THAT(Lines(), ElementsAre("", ""));
}

TEST_F(DaemonKeeperTest, AllElseIsTheEnd) {
  for (const int code : {0, 1, 2, 3, 4, 5, 6, 130}) {
    EXPECT_EQ(Keep("exit " + std::to_string(code)).code, code);
  }
  EXPECT_THAT(said_, SizeIs(0));
}

TEST_F(DaemonKeeperTest, PassesASignalOnAndStartsNothingAfterIt) {
  for (const int signal : {SIGTERM, SIGINT}) {
    Interruption interruption(KeptSignalEffects());
    std::thread sender = SendSignal(signal);
    EXPECT_EQ(Keep(AwaitSignal(), &interruption).signal, signal);
    sender.join();
    std::remove(directory_.Path("here").c_str());
    EXPECT_THAT(Lines(), SizeIs(signal == SIGTERM ? 1 : 2));
  }
  EXPECT_THAT(said_, SizeIs(0));
}

TEST_F(DaemonKeeperTest, ASnapshotsSignalIsNoEnd) {
  Interruption interruption(KeptSignalEffects());
  std::thread sender = SendSignal(SIGHUP);
  // The first process is killed after it has had the signal.
  const ExitStatus status = Keep("[ $runs = 2 ] && exit 0; trap 'kill -9 $$' HUP; touch " +
                                     directory_.Path("here") + "; while :; do sleep 0.02; done",
                                 &interruption);
  sender.join();
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(Lines(), SizeIs(2));
}

// For a moment there may be as many processes as the user may have. That limit is none for root.
TEST_F(DaemonKeeperTest, WhenNoProcessCanBeStartedItIsTriedAgain) {
  constexpr uid_t kNobody = 65534;
  std::filesystem::permissions(directory_.path(), std::filesystem::perms::all);
  const auto keep = [this] {
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(1);
    rlimit usual{};
    getrlimit(RLIMIT_NPROC, &usual);
    when_said_ = [&usual](const std::string& news) {
      const bool died = news.find("was killed") != std::string::npos;
      const rlimit limit = {died ? 0 : usual.rlim_cur, usual.rlim_max};
      setrlimit(RLIMIT_NPROC, &limit);
    };
    const ExitStatus status = Keep("[ $runs = 1 ] && kill -9 $$; exit 0");
    for (const std::string& news : said_) std::cerr << news << "\n";
    _exit(status.ok() && Lines().size() == 2 ? 0 : 1);
  };
  EXPECT_EXIT(
      keep(), testing::ExitedWithCode(0),
      "is started again\nsh can't be started again .can't start sh: .*; it is tried again in "
      "0.50 s\n");
}

// Nothing runs while it waits to start another, after the third death for a second.
TEST_F(DaemonKeeperTest, ASignalBetweenTwoProcessesIsTheEnd) {
  Interruption interruption(KeptSignalEffects());
  std::thread sender = SendSignal(SIGTERM);
  // Of the third death; the fourth process is due in a second.
  when_said_ = [this](const std::string&) {
    if (said_.size() == 3) directory_.Write("here", "");
  };
  const ExitStatus status = Keep("kill -9 $$", &interruption);
  sender.join();
  EXPECT_EQ(status.code, static_cast<int>(ExitCode::kInterrupted));
  EXPECT_THAT(Lines(), SizeIs(3));
}

// With the times of deaths and starts given.
TEST(RestartBackoffTest, WaitsEverLongerUntilOneHasRunForAMinute) {
  Time now = Seconds(100);
  RestartBackoff backoff(now);
  const auto die_after = [&](Duration run) {
    now += run;
    const Duration wait = backoff.AfterDeath(now) - now;
    now += wait;
    backoff.Restarted(now);
    return ToSeconds(wait);
  };
  for (const double wait : {0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0}) {
    EXPECT_EQ(die_after(Seconds(1)), wait);
  }
  EXPECT_EQ(die_after(Seconds(60)), 30) << "not yet longer than a minute";
  EXPECT_EQ(die_after(Seconds(60.5)), 0);
  EXPECT_EQ(die_after(Seconds(1)), 0.5);

  backoff = RestartBackoff(now, Seconds(15));
  for (const double wait : {0.0, 15.0, 30.0, 30.0}) EXPECT_EQ(die_after(Seconds(1)), wait);
}

}  // namespace
}  // namespace poseidon
