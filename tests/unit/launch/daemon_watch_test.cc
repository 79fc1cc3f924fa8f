#include "launch/daemon_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <map>
#include <thread>
#include <utility>

#include "core/steady_now.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

bool IsZombie(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text);
  return text.find(") Z ") != std::string::npos;
}

// Shell scripts in the place of a job's processes; the first is the scheduler's.
class DaemonWatchTest : public testing::Test {
 protected:
  ChildProcess Shell(const std::string& name, const std::string& script) const {
    return ChildProcess(ChildOptions{.name = name,
                                     .command = {"/bin/sh", "-c", script},
                                     .log = directory_.Path(name),
                                     .output = "",
                                     .inherit_output = false,
                                     .piped_input = false});
  }
  void Start(const std::string& name, const std::string& script) {
    daemons_.push_back(Shell(name, script));
  }
  WatchResult Watch(Interruption* interruption = nullptr) {
    WatchOptions options;
    options.interruption = interruption;
    options.restart = restart_;
    options.goes_on_without = goes_on_without_;
    options.may_leave = may_leave_;
    options.has_started = has_started_;
    options.given_up = [this] { return std::exchange(given_up_, {}); };
    if (tells_lost_) {
      options.tell_lost = [this](size_t index, const std::string& cause) {
        lost_.push_back(std::to_string(index) + " " + cause);
        std::ofstream(directory_.Path("told")) << cause;
      };
    }
    options.say = [this](const std::string& news) {
      said_.push_back(news);
      std::ofstream(directory_.Path("said")) << news;
    };
    return WatchDaemons(daemons_, options);
  }

  // The job does, and none of them is to be started again.
  void GoOnWithoutWorkers() {
    goes_on_without_ = [](size_t index) { return index > 0; };
    restart_ = [this](size_t, int) {
      ADD_FAILURE() << "it is started again";
      return Shell("worker-0", "exit 0");
    };
    tells_lost_ = true;
  }

  // Waits in a script until the watch has said something.
  std::string AwaitNews() const {
    return "until [ -e " + directory_.Path("said") + " ]; do sleep 0.05; done; ";
  }

  // Waits in a script until another one of these has finished.
  std::string AwaitFinish() const {
    return "until [ -e " + directory_.Path("finished") + " ]; do sleep 0.01; done; ";
  }
  std::string Finish() const { return "touch " + directory_.Path("finished"); }

  TemporaryDirectory directory_;
  std::vector<ChildProcess> daemons_;
  std::function<ChildProcess(size_t, int)> restart_;
  std::function<bool(size_t)> goes_on_without_;
  std::function<bool(size_t)> may_leave_;
  std::function<bool(size_t)> has_started_;
  std::map<size_t, std::string> given_up_;  // when the watch begins
  std::vector<std::string> said_;
  bool tells_lost_ = false;
  std::vector<std::string> lost_;  // whom the scheduler was told of
};

TEST_F(DaemonWatchTest, TheSchedulersLossOfANodeIsNotCalledTheCause) {
  Start("scheduler", "exit 3");
  Start("worker-0", AwaitNews() + "exit 6");
  const WatchResult result = Watch();
  EXPECT_EQ(result.code, ExitCode::kDataError);
  EXPECT_THAT(result.culprits, ElementsAre(1, 0));
  EXPECT_THAT(said_, ElementsAre("the job has failed; waiting for its processes to end"));
}

TEST_F(DaemonWatchTest, ACrashIsToldWithItsOwnWordsAtOnce) {
  Start("scheduler", AwaitNews() + "exit 3");
  Start("worker-0",
        "echo 'F1122 10:00:00.000000 7 net.cpp:1] Check failed: a == b' >&2; echo '    @ 0x1' >&2; "
        "kill -ABRT $$");
  EXPECT_EQ(Watch().code, ExitCode::kPeerLost);
  EXPECT_THAT(said_,
              ElementsAre("worker-0 was killed by signal 6 (SIGABRT): F1122 10:00:00.000000 7 "
                          "net.cpp:1] Check failed: a == b; waiting for the others to end"));
}

TEST_F(DaemonWatchTest, TheSchedulerIsToldOfACrashWithItsWords) {
  tells_lost_ = true;
  Start("scheduler", "until [ -e " + directory_.Path("told") + " ]; do sleep 0.05; done; exit 3");
  Start("server-0", "exec sleep 60");
  Start("worker-0", "echo 'F1122 10:00:00.0 7 net.cpp:1] no' >&2; kill -ABRT $$");
  const Time begin = SteadyNow();
  EXPECT_EQ(Watch().code, ExitCode::kPeerLost);
  EXPECT_THAT(lost_,
              ElementsAre("2 was killed by signal 6 (SIGABRT): F1122 10:00:00.0 7 net.cpp:1] no"));
  // The server has not joined, so the scheduler does not know it.
  EXPECT_LT(SteadyNow() - begin, Seconds(5));
}

TEST_F(DaemonWatchTest, WhoHasEndedByItselfHasTimeToTellTheScheduler) {
  tells_lost_ = true;
  Start("scheduler", AwaitNews() + "exit 3");
  Start("worker-0", "exit 6");
  EXPECT_EQ(Watch().code, ExitCode::kDataError);
  EXPECT_THAT(lost_, ElementsAre());
}

TEST_F(DaemonWatchTest, WhenTheSchedulerIsKilledTheOthersAreAskedToEnd) {
  tells_lost_ = true;
  Start("scheduler", "kill -9 $$");
  Start("worker-0", "exec sleep 60");
  const Time begin = SteadyNow();
  const WatchResult result = Watch();
  EXPECT_EQ(result.code, ExitCode::kPeerLost);
  EXPECT_THAT(lost_, ElementsAre());
  EXPECT_THAT(said_, ElementsAre("scheduler was killed by signal 9 (SIGKILL); waiting for the "
                                 "others to end"));
  EXPECT_LT(SteadyNow() - begin, Seconds(5));
}

TEST_F(DaemonWatchTest, AnInterruptionEndsThoseTooThatHaveNotJoined) {
  Interruption interruption;
  Start("scheduler", "exec sleep 60");
  Start("worker-0", "exec sleep 60");
  const Time begin = SteadyNow();
  raise(SIGTERM);
  EXPECT_EQ(Watch(&interruption).code, ExitCode::kInterrupted);
  // Who is asked and does not end is killed after 5 s; these have been asked.
  EXPECT_LT(SteadyNow() - begin, Seconds(4));
}

TEST_F(DaemonWatchTest, OneThatIsKilledIsStartedAgainThoughItDiesAtOnce) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "kill -9 $$");
  std::vector<int> restarts;
  restart_ = [&](size_t index, int number) {
    EXPECT_EQ(index, 1u);
    restarts.push_back(number);
    if (number > 1) return Shell("worker-0", Finish());
    // It is dead before anybody has looked at it.
    ChildProcess killed = Shell("worker-0", "kill -9 $$");
    killed.Wait();
    return killed;
  };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(restarts, ElementsAre(1, 2));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("; it is started again"),
                                 HasSubstr("; it is started again in 0.5")));
}

TEST_F(DaemonWatchTest, OfOneThatTheJobGoesOnWithoutTheSchedulerIsTold) {
  // It ends well when it has been told.
  Start("scheduler", "until [ -e " + directory_.Path("told") + " ]; do sleep 0.05; done");
  Start("worker-0", "kill -9 $$");
  GoOnWithoutWorkers();
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(lost_, ElementsAre("1 was killed by signal 9 (SIGKILL)"));
  EXPECT_THAT(
      said_, ElementsAre(HasSubstr("; the job goes on without it, if others have the parameters")));
}

// As by a second SIGTERM, where it had to stay at the first (elastic.min_workers).
TEST_F(DaemonWatchTest, OneThatMayLeaveAndIsEndedAtOnceIsLostAlone) {
  Start("scheduler", "until [ -e " + directory_.Path("told") + " ]; do sleep 0.05; done");
  Start("worker-0", "exit 130");
  GoOnWithoutWorkers();
  may_leave_ = goes_on_without_;
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(lost_, ElementsAre("1 exited with code 130"));
  EXPECT_THAT(said_, ElementsAre(HasSubstr("; the job goes on without it")));
}

TEST_F(DaemonWatchTest, WhereAJobIsEndedThoseWhoMayLeaveAreNotCalledLost) {
  Interruption interruption({.sigint = SignalEffect::kStop});
  raise(SIGINT);
  Start("scheduler", "trap 'exit 130' INT; " + AwaitFinish() + "sleep 0.2; exit 130");
  Start("worker-0", AwaitNews() + Finish() + "; exit 130");
  GoOnWithoutWorkers();
  may_leave_ = goes_on_without_;
  EXPECT_EQ(Watch(&interruption).code, ExitCode::kInterrupted);
  EXPECT_THAT(lost_, IsEmpty());
  EXPECT_THAT(said_, ElementsAre(HasSubstr("training ends after an iteration")));
}

TEST_F(DaemonWatchTest, WhoIsGivenUpAndDoesNotEndIsKilledAndStartedAgain) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "exec sleep 1000");
  // It has heard so, and the one in its place is not meant.
  Start("worker-1", "exit " + std::to_string(static_cast<int>(ExitCode::kGivenUp)));
  given_up_ = {{1, "no heartbeat for 9 s"}, {2, "no heartbeat for 9 s"}};
  restart_ = [this](size_t index, int number) {
    EXPECT_EQ(number, 1);
    return index == 1 ? Shell("worker-0", "sleep 1; " + Finish())
                      : Shell("worker-1", AwaitFinish());
  };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("worker-1 exited with code "),
                                 "worker-0 has been given up by the scheduler (no heartbeat for 9 "
                                 "s) and does not end; it is killed",
                                 HasSubstr("worker-0 was killed by signal 9")));
}

TEST_F(DaemonWatchTest, WhoIsGivenUpIsKilledWithAllThatItHasStarted) {
  Start("scheduler", "until [ -e " + directory_.Path("told") + " ]; do sleep 0.05; done");
  const std::string child = directory_.Path("child");
  Start("worker-0", "sleep 1000 & echo $! > " + child + "; wait");
  given_up_ = {{1, "no heartbeat for 9 s"}};
  GoOnWithoutWorkers();
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(said_, ElementsAre(HasSubstr("does not end; it is killed"),
                                 HasSubstr("; the job goes on without it")));
  pid_t pid = 0;
  std::ifstream(child) >> pid;
  ASSERT_GT(pid, 0);
  // Whoever takes the place of its parent may need a moment until it is gone.
  const Time end = SteadyNow() + Seconds(20);
  while (kill(pid, 0) == 0 && SteadyNow() < end && !IsZombie(pid)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(kill(pid, 0) != 0 || IsZombie(pid));
}

TEST_F(DaemonWatchTest, AKilledSchedulerIsStartedAgainAndThenWhoeverElseWas) {
  Start("scheduler", "kill -9 $$");
  Start("worker-0", "kill -9 $$");
  for (ChildProcess& daemon : daemons_) daemon.Wait();
  std::vector<size_t> restarts;
  restart_ = [&](size_t index, int) {
    restarts.push_back(index);
    return index == 0 ? Shell("scheduler", AwaitFinish()) : Shell("worker-0", Finish());
  };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(restarts, ElementsAre(0, 1));
}

TEST_F(DaemonWatchTest, ASchedulerThatIsKilledWhenTheOthersHaveEndedIsStartedAgain) {
  Start("worker-0", "exit 0");
  daemons_.front().Wait();
  daemons_.insert(daemons_.begin(), Shell("scheduler", "kill -9 $$"));
  daemons_.front().Wait();
  int restarts = 0;
  restart_ = [&](size_t, int) {
    ++restarts;
    return Shell("scheduler", "exit 0");
  };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_EQ(restarts, 1);
}

TEST_F(DaemonWatchTest, ASchedulerThatEndsByItselfIsNotStartedAgain) {
  for (const char* code : {"0", "2", "5", "6", "130"}) {
    daemons_.clear();
    Start("scheduler", std::string("exit ") + code);
    restart_ = [this](size_t, int) {
      ADD_FAILURE() << "it would do the same again";
      return Shell("scheduler", "exit 0");
    };
    Watch();
  }
}

TEST_F(DaemonWatchTest, OneThatTheJobHasGoneOnWithoutIsStartedAgain) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "exit 8");
  restart_ = [&](size_t, int) { return Shell("worker-0", Finish()); };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
}

// The others have gone on with fewer, or a spare has the place.
TEST_F(DaemonWatchTest, OneThatComesTooLateForADeadOnesPlaceIsNoFailure) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "kill -9 $$");
  restart_ = [&](size_t, int) { return Shell("worker-0", Finish() + "; exit 5"); };
  tells_lost_ = true;
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(lost_, IsEmpty());
}

// As it is of another build, say: whoever watches is told why.
TEST_F(DaemonWatchTest, OneThatMayNotTakeADeadOnesPlaceIsQuoted) {
  const std::string said = directory_.Path("said");
  Start("scheduler",
        "for i in $(seq 400); do grep -q ' code 5' " + said + " && break; sleep 0.05; done");
  Start("worker-0", "kill -9 $$");
  restart_ = [&](size_t, int) {
    return Shell("worker-0", "echo 'poseidon_worker: it is of build 1+bb' >&2; exit 5");
  };
  tells_lost_ = true;
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  ASSERT_FALSE(said_.empty());
  EXPECT_EQ(said_.back(),
            "worker-0 exited with code 5: poseidon_worker: it is of build 1+bb; no other is "
            "started in its place");
}

// The scheduler has ended before it could join, so nobody tells it.
TEST_F(DaemonWatchTest, OneThatWasStartedAgainAtTheVeryEndIsEndedAndIsNoFailure) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "kill -9 $$");
  restart_ = [&](size_t, int) { return Shell("worker-0", Finish() + "; exec sleep 100"); };
  const Time begin = SteadyNow();
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_LT(SteadyNow() - begin, Seconds(20));
}

TEST_F(DaemonWatchTest, WhoIsKilledWhenAJobThatRecoversHasEndedWellIsNoFailure) {
  Start("worker-0", AwaitFinish() + "sleep 0.3; kill -9 $$");
  daemons_.insert(daemons_.begin(), Shell("scheduler", Finish()));
  restart_ = [this](size_t, int) {
    ADD_FAILURE() << "the job is over";
    return Shell("worker-0", "exit 0");
  };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
}

TEST_F(DaemonWatchTest, WhoHasNotJoinedWhenTheJobIsStoppedIsEnded) {
  SignalEffects effects;
  effects.sigint = SignalEffect::kStop;
  Interruption interruption(effects);
  Start("scheduler", "trap 'exit 130' INT; " + Finish() + "; while :; do sleep 0.02; done");
  Start("worker-0", "trap 'exit 130' INT; while :; do sleep 0.02; done");
  std::thread asks([this] {
    while (!std::ifstream(directory_.Path("finished"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    kill(getpid(), SIGINT);
  });
  const Time begin = SteadyNow();
  EXPECT_EQ(Watch(&interruption).code, ExitCode::kInterrupted);
  EXPECT_LT(SteadyNow() - begin, Seconds(20));
  asks.join();
}

TEST_F(DaemonWatchTest, OneThatIsRefusedAtFirstIsAFailure) {
  Start("scheduler", "sleep 0.2; exit 3");
  Start("worker-0", "exit 5");
  restart_ = [this](size_t, int) {
    ADD_FAILURE() << "it would be refused again";
    return Shell("worker-0", "exit 0");
  };
  EXPECT_EQ(Watch().code, ExitCode::kRefused);
}

// The machine may be short of memory or of processes for a moment.
TEST_F(DaemonWatchTest, WhenNoProcessCanBeStartedItIsTriedAgainAndTheOthersLive) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "kill -9 $$");
  int calls = 0;
  std::vector<int> restarts;
  restart_ = [&](size_t, int number) {
    restarts.push_back(number);
    if (++calls < 3) throw Error(ExitCode::kFailure, "can't start worker-0: no memory");
    return Shell("worker-0", Finish());
  };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_THAT(restarts, ElementsAre(1, 1, 1));
  EXPECT_THAT(
      said_, ElementsAre(HasSubstr("; it is started again"),
                         "worker-0 can't be started again (can't start worker-0: no memory); it is "
                         "tried again in 0.50 s",
                         HasSubstr("; it is tried again in 1.00 s")));
}

// Its host is gone, and may come back.
TEST_F(DaemonWatchTest, OneThatCanNotBeStartedInADeadOnesPlaceIsTriedAgain) {
  Start("scheduler", AwaitFinish());
  Start("worker-0", "kill -9 $$");
  int starts = 0;
  restart_ = [&](size_t, int) {
    return ++starts < 3 ? Shell("worker-0", "exit 1") : Shell("worker-0", Finish());
  };
  has_started_ = [&](size_t index) { return index == 0 || starts == 0 || starts == 3; };
  EXPECT_EQ(Watch().code, ExitCode::kSuccess);
  EXPECT_EQ(starts, 3);
}

TEST_F(DaemonWatchTest, ARequestWaitsForTheSchedulerThatIsStartedAgain) {
  Start("scheduler", "sleep 0.3; kill -9 $$");
  Start("worker-0", AwaitFinish());
  restart_ = [&](size_t, int) {
    // It does not know at once what its signals mean.
    return Shell("scheduler", "sleep 0.5; trap '" + Finish() + "; exit 130' HUP; " + AwaitFinish());
  };
  Interruption interruption({.sighup = SignalEffect::kStop});
  std::thread asks([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(450));
    kill(getpid(), SIGHUP);
  });
  EXPECT_EQ(Watch(&interruption).code, ExitCode::kInterrupted);
  asks.join();
}

TEST_F(DaemonWatchTest, ARequestWaitsForTheSchedulerThatIsStarted) {
  Interruption interruption({.sigint = SignalEffect::kStop});
  raise(SIGINT);
  Start("scheduler", "sleep 0.5; trap '" + Finish() + "; exit 130' INT; " + AwaitFinish());
  EXPECT_EQ(Watch(&interruption).code, ExitCode::kInterrupted);
  EXPECT_TRUE(std::ifstream(directory_.Path("finished"))) << "the signal has come too early";
}

TEST_F(DaemonWatchTest, ASchedulerThatDiesOfTheStopThatItIsAskedForIsNoFailure) {
  Interruption interruption({.sigint = SignalEffect::kStop});
  raise(SIGINT);
  Start("scheduler", "exec sleep 60");
  const WatchResult result = Watch(&interruption);
  EXPECT_EQ(result.code, ExitCode::kInterrupted);
  EXPECT_THAT(result.culprits, IsEmpty());
}

// It may have died before it wrote down that it was to stop.
TEST_F(DaemonWatchTest, AStopIsSaidAgainToASchedulerThatTakesOver) {
  Interruption interruption({.sighup = SignalEffect::kStop});
  Start("scheduler", "trap 'kill -9 $$' HUP; touch " + directory_.Path("here") +
                         "; while :; do sleep 0.02; done");
  Start("worker-0", AwaitFinish());
  restart_ = [&](size_t, int) {
    return Shell("scheduler",
                 "trap '" + Finish() + "; exit 130' HUP; while :; do sleep 0.02; done");
  };
  std::thread asks([this] {
    while (!std::ifstream(directory_.Path("here"))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    kill(getpid(), SIGHUP);
  });
  EXPECT_EQ(Watch(&interruption).code, ExitCode::kInterrupted);
  asks.join();
}

TEST_F(DaemonWatchTest, OneThatFailsByItselfIsNotStartedAgain) {
  Start("scheduler", AwaitNews() + "exit 3");
  Start("worker-0", "exit 6");
  restart_ = [this](size_t, int) {
    ADD_FAILURE() << "it would do the same again";
    return Shell("worker-0", "exit 0");
  };
  EXPECT_EQ(Watch().code, ExitCode::kDataError);
}

// Who has stopped a job does not want it started again because a node dies meanwhile.
TEST_F(DaemonWatchTest, AFailureOfAJobThatWasStoppedIsNotToBeTriedAgain) {
  SignalEffects effects;
  effects.sigint = SignalEffect::kStop;
  Interruption interruption(effects);
  Start("scheduler", "trap 'exit 3' INT; while :; do sleep 0.05; done");
  raise(SIGINT);
  const WatchResult result = Watch(&interruption);
  EXPECT_EQ(result.code, ExitCode::kPeerLost);
  EXPECT_TRUE(result.stopped);
}

TEST_F(DaemonWatchTest, AFailureOfAJobThatGoesOnMayBeTriedAgain) {
  Start("scheduler", "exit 3");
  EXPECT_FALSE(Watch().stopped);
}

}  // namespace
}  // namespace poseidon
