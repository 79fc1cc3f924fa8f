// Programs that end in every way, and what they leave.
#include "core/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;

class ChildProcessTest : public ::testing::Test {
 protected:
  ChildOptions Shell(const std::string& script) const {
    ChildOptions options;
    options.name = "child";
    options.command = {"/bin/sh", "-c", script};
    options.log = directory_.Path("log");
    return options;
  }
  std::string Log() const { return Read("log"); }
  std::string Read(const std::string& name) const {
    std::ifstream file(directory_.Path(name));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Waits until the process has said that.
  void AwaitLog(const std::string& text) const {
    for (int i = 0; i < 1000 && Log() != text; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ASSERT_EQ(Log(), text);
  }

  TemporaryDirectory directory_;
};

// One that has ended may be there until its new parent, init, has heard of it.
bool Lives(pid_t process) {
  std::ifstream state("/proc/" + std::to_string(process) + "/stat");
  std::string pid;
  std::string name;
  std::string letter;
  return static_cast<bool>(state >> pid >> name >> letter) && letter != "Z";
}

bool EndsSoon(pid_t process) {
  for (int i = 0; i < 1000 && Lives(process); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return !Lives(process);
}

TEST_F(ChildProcessTest, TellsHowItEnded) {
  const ExitStatus good = ChildProcess(Shell("exit 0")).Wait();
  EXPECT_TRUE(good.ok());
  const ExitStatus bad = ChildProcess(Shell("exit 3")).Wait();
  EXPECT_EQ(bad.ToString(), "exited with code 3");
  const ExitStatus killed = ChildProcess(Shell("kill -9 $$")).Wait();
  EXPECT_FALSE(killed.ok());
  EXPECT_EQ(killed.ToString(), "was killed by signal 9 (SIGKILL)");
}

TEST_F(ChildProcessTest, KeepsWhatItSays) {
  ChildProcess(Shell("echo out; echo error >&2")).Wait();
  EXPECT_EQ(Log(), "out\nerror\n");
  ChildOptions apart = Shell("echo out; echo error >&2");
  apart.output = directory_.Path("output");
  ChildProcess(std::move(apart)).Wait();
  EXPECT_EQ(Log(), "error\n");
  EXPECT_EQ(Read("output"), "out\n");
}

// As `stty tostop` has a terminal do with all but the group of processes in its foreground.
TEST_F(ChildProcessTest, WritesToATerminalThatStopsWhoElseDoes) {
  int terminal = -1;
  const pid_t program = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (program < 0) GTEST_SKIP() << "there are no pseudoterminals here";
  if (program == 0) {
    termios settings{};
    tcgetattr(STDIN_FILENO, &settings);
    settings.c_lflag |= TOSTOP;
    tcsetattr(STDIN_FILENO, TCSANOW, &settings);
    ChildOptions options = Shell("echo error >&2; echo output");
    options.log.clear();
    options.inherit_output = true;
    _exit(ChildProcess(std::move(options)).Wait().code);
  }
  int status = -1;
  for (int i = 0; i < 1000 && waitpid(program, &status, WNOHANG) == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (status == -1) kill(program, SIGKILL);
  EXPECT_EQ(status, 0) << "it is stopped";
  std::string said(100, '\0');
  said.resize(std::max<ssize_t>(0, read(terminal, said.data(), said.size())));
  EXPECT_EQ(said, "error\r\noutput\r\n");
  close(terminal);
}

// A group that shares a directory has a umask for that.
TEST_F(ChildProcessTest, TheUmaskSaysWhoReadsALog) {
  const mode_t before = umask(0027);
  ChildProcess(Shell("echo one")).Wait();
  umask(0002);
  ChildOptions apart = Shell("echo two");
  apart.output = directory_.Path("output");
  ChildProcess(std::move(apart)).Wait();
  umask(before);
  struct stat log {};
  struct stat output {};
  ASSERT_EQ(stat(directory_.Path("log").c_str(), &log), 0);
  ASSERT_EQ(stat(directory_.Path("output").c_str(), &output), 0);
  EXPECT_EQ(log.st_mode & 0777, 0640u);
  EXPECT_EQ(output.st_mode & 0777, 0664u);
}

// As logrotate's copytruncate does.
TEST_F(ChildProcessTest, ALogThatIsEmptiedIsWrittenFromItsBeginning) {
  ChildProcess(Shell("echo one; : > " + directory_.Path("log") + "; echo two")).Wait();
  EXPECT_EQ(Log(), "two\n");
}

// A program that is told once that its log has no room may never write to it again, as ssh does.
TEST_F(ChildProcessTest, ALogByWayOfThisProgramMayHaveNoRoomForAWhile) {
  ChildOptions options = Shell(
      "head -c 300000 /dev/zero | tr '\\0' x; echo; echo ready to go; read line; echo already; "
      "echo last");
  options.log_mark = "ready";
  options.piped_input = true;
  // Beyond this limit a write fails, once the signal is ignored. The child only writes to a pipe.
  const auto before = signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  rlimit limit = usual;
  limit.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  ChildProcess child(std::move(options));
  for (int i = 0; i < 1000 && !child.log_has_mark() && !child.Poll(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  setrlimit(RLIMIT_FSIZE, &usual);
  signal(SIGXFSZ, before);
  EXPECT_TRUE(child.log_has_mark());
  child.Write("\n");
  EXPECT_TRUE(child.Wait().ok());
  EXPECT_EQ(Log(), std::string(1000, 'x') +
                       "\n(299013 bytes were not written: File too large)\nalready\nlast\n");
  EXPECT_TRUE(child.log_has_mark());
}

TEST_F(ChildProcessTest, TheMarkOfALogIsTheBeginningOfALine) {
  ChildOptions options = Shell("echo al; echo already; printf rea; printf ch; echo; printf ready");
  for (const std::string mark : {"ready", "rea", "steady"}) {
    options.log_mark = mark;
    ChildProcess child(options);
    child.Wait();
    EXPECT_EQ(child.log_has_mark(), mark != "steady") << mark;
  }
}

TEST_F(ChildProcessTest, ReadsNothingOrWhatIsWritten) {
  ChildProcess(Shell("cat; echo end")).Wait();
  EXPECT_EQ(Log(), "end\n");
  ChildOptions piped = Shell("head -c 300000 | wc -c; cat; echo end");
  piped.piped_input = true;
  ChildProcess child(std::move(piped));
  child.Write(std::string(300000, 'x'));
  AwaitLog("300000\n");
  child.Write("more\n");
  AwaitLog("300000\nmore\n");
  EXPECT_FALSE(child.Poll());
  child.RequestEnd();
  EXPECT_TRUE(child.Wait().ok());
  EXPECT_EQ(Log(), "300000\nmore\nend\n");
}

TEST_F(ChildProcessTest, OneThatReadsNothingIsToldOf) {
  ChildOptions piped = Shell("exec sleep 1000");
  piped.piped_input = true;
  ChildProcess child(std::move(piped));
  const std::string said =
      MessageOf<Error>([&] { child.Write(std::string(10000000, 'x'), Seconds(0.2)); });
  EXPECT_THAT(said, HasSubstr("child has read nothing for 0.2 s of what it is told, and "));
  EXPECT_THAT(said, HasSubstr(" of 10000000 bytes are left; see whether it hangs (log: " +
                              directory_.Path("log") + ")"));
}

// It waits until its log is read before it reads on.
TEST_F(ChildProcessTest, OneThatSaysMuchBeforeItReadsIsHeardMeanwhile) {
  ChildOptions piped = Shell("head -c 300000 /dev/zero | tr '\\0' x; exec wc -c");
  piped.piped_input = true;
  piped.log_mark = "ready";
  ChildProcess child(std::move(piped));
  child.Write(std::string(1000000, 'x'));
  child.RequestEnd();
  EXPECT_TRUE(child.Wait().ok());
  EXPECT_EQ(Log(), std::string(300000, 'x') + "1000000\n");
}

TEST_F(ChildProcessTest, WritingToOneThatHasEndedIsNoError) {
  ChildOptions piped = Shell("exit 5");
  piped.piped_input = true;
  ChildProcess child(std::move(piped));
  child.Wait();
  child.Write(std::string(1000000, 'x'));
  EXPECT_EQ(child.Poll()->code, 5);
}

TEST_F(ChildProcessTest, IsAskedToEndByASignal) {
  ChildProcess child(Shell("trap 'exit 7' INT; echo ready; while :; do sleep 0.01; done"));
  AwaitLog("ready\n");
  child.RequestEnd();
  EXPECT_EQ(child.Wait().code, 7);
}

TEST_F(ChildProcessTest, DiesWithItsObject) {
  pid_t pid = 0;
  {
    std::optional<ChildProcess> child(Shell("trap '' INT TERM; echo ready; sleep 100"));
    AwaitLog("ready\n");
    ChildProcess moved = std::move(*child);
    child.reset();
    pid = moved.pid();
    EXPECT_EQ(kill(pid, 0), 0) << "it belongs to the other object";
  }
  EXPECT_EQ(kill(pid, 0), -1);
  EXPECT_EQ(errno, ESRCH);
}

TEST_F(ChildProcessTest, WhatItHasStartedEndsWithIt) {
  for (const std::string end : {"exit 0", "kill -9 $$"}) {
    ChildProcess(Shell("sleep 1000 & echo $!; " + end)).Wait();
    const pid_t started = std::stoi(Log());
    EXPECT_TRUE(EndsSoon(started)) << end;
    kill(started, SIGKILL);
  }
}

TEST_F(ChildProcessTest, DiesWithThisProgram) {
  const pid_t program = fork();
  if (program == 0) {
    ChildProcess child(Shell("echo $$; sleep 100"));
    while (Log().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(program, &status, 0);
  EXPECT_TRUE(EndsSoon(std::stoi(Log())));
}

TEST_F(ChildProcessTest, WhatCanNotBeStartedSaysSo) {
  ChildOptions nothing = Shell("");
  nothing.command = {"/there/is/none"};
  EXPECT_EQ(ChildProcess(nothing).Wait().code, 127);
  EXPECT_THAT(Log(), HasSubstr("can't start"));
  nothing.log = "/there/is/none";
  EXPECT_THAT(MessageOf<Error>([&] { ChildProcess child(nothing); }),
              HasSubstr("can't write /there/is/none: No such file"));
}

TEST_F(ChildProcessTest, FindsPrograms) {
  EXPECT_THAT(FindProgram("sh"), HasSubstr("/sh"));
  EXPECT_EQ(FindProgram("./here"), "./here");
  EXPECT_THAT(MessageOf<Error>([] { FindProgram("no-such-program"); }),
              HasSubstr("there is no program no-such-program"));
}

TEST_F(ChildProcessTest, FindsProgramsWithoutAPath) {
  const std::string path = std::getenv("PATH");
  unsetenv("PATH");
  EXPECT_THAT(FindProgram("sh"), HasSubstr("/bin/sh"));
  setenv("PATH", path.c_str(), 1);
}

// Those that somebody has installed by hand come first, as for a shell.
TEST_F(ChildProcessTest, FindsLocalProgramsWithoutAPath) {
  const std::string directory = "/usr/local/bin/";
  std::string program;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    const std::string name = entry.path().filename().string();
    if (access(entry.path().c_str(), X_OK) == 0) program = name;
  }
  if (program.empty()) GTEST_SKIP() << "no program is in " << directory;
  const std::string path = std::getenv("PATH");
  unsetenv("PATH");
  EXPECT_EQ(FindProgram(program), directory + program);
  setenv("PATH", path.c_str(), 1);
}

}  // namespace
}  // namespace poseidon
