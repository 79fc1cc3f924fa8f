// Programs behind a remote shell; here one that runs them on this machine.
#include "launch/remote_shell.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

#include "core/files/regular_file.h"
#include "core/process/program_directory.h"
#include "launch/process_cluster.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

class RemoteShellTest : public testing::Test {
 protected:
  // How a program of the user's has ended, by what the remote shell says of it.
  ExitStatus EndOf(const std::string& script, const std::string& remote_shell = "eval \"$1\"") {
    RemoteShell shell;
    // The host's name is the shell's own, and what is to be done there its first argument.
    shell.command = {"/bin/sh", "-c", remote_shell};
    shell.directory = there_;
    RemoteCommand command;
    command.name = "worker-0";
    command.host = "node0";
    command.command = {"/bin/sh", "-c", script};
    command.is_daemon = false;
    command.job = "cluster {}";
    command.log = directory_.Path("log");
    command.result = "result";
    command.output = directory_.Path("result");
    return StartRemotely(shell, command).Wait();
  }
  std::string Result() const {
    return ReadRegularFile(directory_.Path("result"), ExitCode::kFailure);
  }

  TemporaryDirectory directory_;
  std::string there_ = directory_.path();  // where the program's own directory is made
};

TEST_F(RemoteShellTest, AProgramsEndIsItsOwn) {
  EXPECT_EQ(EndOf("exit 6").code, 6);
  EXPECT_EQ(EndOf("kill -ABRT $$").signal, SIGABRT);
}

// ssh ends with 255 when its connection has gone, upon which a program is started again.
TEST_F(RemoteShellTest, AProgramThatFailsHasNotLostItsConnection) {
  const ExitStatus end = EndOf("exit 255");
  EXPECT_EQ(end.signal, 0) << end.ToString();
  EXPECT_EQ(end.code, static_cast<int>(ExitCode::kFailure)) << end.ToString();
}

// Where a directory is mounted on other machines, here a symbolic link may lead to it.
class NamedPathsTest : public RemoteShellTest {
 protected:
  NamedPathsTest() {
    fs::create_directory(directory_.Path("real"));
    fs::create_directory_symlink(directory_.Path("real"), directory_.Path("link"));
    fs::current_path(directory_.Path("link"));
    setenv("PWD", directory_.Path("link").c_str(), 1);
  }
  ~NamedPathsTest() override {
    fs::current_path(before_);
    setenv("PWD", before_.c_str(), 1);
  }

 private:
  std::string before_ = fs::current_path().string();
};

TEST_F(NamedPathsTest, AProgramStartsWhereThisOneWasStartedByTheSamePath) {
  EXPECT_EQ(NamedWorkingDirectory(), directory_.Path("link"));
  EXPECT_EQ(EndOf("test \"$(pwd -L)\" = " + directory_.Path("link")).code, 0);
  setenv("PWD", "/", 1);  // of whoever has changed the directory without a word
  EXPECT_EQ(NamedWorkingDirectory(), directory_.Path("real"));
}

TEST_F(NamedPathsTest, WhereOnlyThisMachineHasTheLinkItStartsInThatPlace) {
  const std::string enter = EnterWorkingDirectory();
  fs::remove(directory_.Path("link"));
  EXPECT_EQ(EndOf("exit 0", "cd / && " + enter + " && test \"$(pwd -P)\" = " +
                                directory_.Path("real") + " && (eval \"$1\")")
                .code,
            0);
}

TEST_F(RemoteShellTest, AConnectionThatIsLostIsAHangUpOnceTheProgramHasRun) {
  const ExitStatus never = EndOf("exit 0", "echo no route to host >&2; exit 255");
  EXPECT_EQ(never.code, static_cast<int>(ExitCode::kFailure));
  EXPECT_EQ(never.ToString(), "could not be started there: no route to host");
  const ExitStatus lost = EndOf("exit 0", "(eval \"$1\"); echo timeout >&2; exit 255");
  EXPECT_EQ(lost.signal, SIGHUP);
  EXPECT_EQ(lost.ToString(), "has lost its connection: timeout");
}

TEST_F(RemoteShellTest, WhereTheJobsFileFindsNoRoomThatIsToldAndNothingIsLeft) {
  EXPECT_EQ(EndOf("exit 0", "ulimit -f 0; eval \"$1\"").code, 1);
  const std::string said = ReadRegularFile(directory_.Path("log"), ExitCode::kFailure);
  EXPECT_TRUE(said.ends_with("can't write the job's file to " + directory_.path() +
                             " on this host; make room there\n"))
      << said;
  for (const auto& entry : fs::directory_iterator(directory_.path())) {
    EXPECT_FALSE(entry.is_directory()) << entry.path();
  }
}

TEST_F(RemoteShellTest, WhyNoDirectoryCanBeMadeForTheJobsFileIsTold) {
  there_ = directory_.Path("none");
  EXPECT_EQ(EndOf("exit 0").code, 1);
  const std::string said = ReadRegularFile(directory_.Path("log"), ExitCode::kFailure);
  EXPECT_NE(said.find(there_ + "/poseidon-"), std::string::npos) << said;
  EXPECT_EQ(said.find("make room there"), std::string::npos) << said;
}

// Logs may be rotated, or emptied or removed by whoever needs the room.
TEST_F(RemoteShellTest, ThatAProgramHasRunIsKnownWithoutItsLog) {
  const std::string log = directory_.Path("log");
  for (const std::string& gone : {": > " + log, "rm " + log}) {
    const ExitStatus lost = EndOf("exit 0", "(eval \"$1\"); " + gone + "; exit 255");
    EXPECT_EQ(lost.signal, SIGHUP) << gone << ": it " << lost.ToString();
  }
}

// What ~/.bashrc, ~/.zshenv or ~/.cshrc prints comes before all that the program's own files say.
TEST_F(RemoteShellTest, AResultIsWhatTheProgramHasLeftWhateverALoginShellPrints) {
  const std::string greet = "echo Welcome to node0; printf %s 'no end of a line'; ";
  const std::string leave = "printf '1\\000\\n\\n2' > \"${POSEIDON_JOB%/*}/result\"";
  EXPECT_TRUE(EndOf(leave, greet + "eval \"$1\"").ok());
  EXPECT_EQ(Result(), std::string("1\0\n\n2", 5));
  EXPECT_TRUE(EndOf(leave).ok());
  EXPECT_EQ(Result(), std::string("1\0\n\n2", 5));
  EXPECT_TRUE(EndOf("exit 0", greet + "eval \"$1\"").ok());
  EXPECT_EQ(Result(), "");
  EXPECT_FALSE(EndOf("exit 0", greet + "exit 255").ok());
  EXPECT_EQ(Result(), "");
}

// The remote shell has no room for it; what there is of it would be taken for the whole.
TEST_F(RemoteShellTest, AResultThatIsCutOffIsToldOfAndRemoved) {
  const std::string advice = " come; is there room for " + directory_.Path("result") + "?";
  for (const auto& [room, what] :
       {std::pair(5000, " of 100000 bytes have"), std::pair(0, "nothing of it has")}) {
    testing::internal::CaptureStderr();
    const ExitStatus end =
        EndOf("head -c 100000 /dev/zero > \"${POSEIDON_JOB%/*}/result\"",
              "eval \"$1\" | { head -c " + std::to_string(room) + "; cat >/dev/null; }");
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(end.ok()) << end.ToString();
    EXPECT_FALSE(fs::exists(directory_.Path("result")));
    EXPECT_NE(said.find("the result of worker-0 on node0 is lost: "), std::string::npos) << said;
    EXPECT_NE(said.find(what + advice), std::string::npos) << said;
  }
}

TEST_F(RemoteShellTest, AResultThatCanNotBeWrittenIsToldOfAndRemoved) {
  testing::internal::CaptureStderr();
  const ExitStatus end = EndOf("echo 1 > \"${POSEIDON_JOB%/*}/result\"",
                               "mkdir " + directory_.Path("result") + ".tmp$PPID; eval \"$1\"");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(end.ok()) << end.ToString();
  EXPECT_FALSE(fs::exists(directory_.Path("result")));
  EXPECT_NE(said.find("the result of worker-0 on node0 is lost: can't create " +
                      directory_.Path("result") + ".tmp"),
            std::string::npos)
      << said;
}

// sshd's Banner, which need not end with a line.
TEST_F(RemoteShellTest, ThatAProgramHasRunIsKnownBehindABanner) {
  const std::string banner = "printf %s 'For members only' >&2; ";
  const ExitStatus lost = EndOf("exit 0", banner + "(eval \"$1\"); exit 255");
  EXPECT_EQ(lost.signal, SIGHUP) << lost.ToString();
}

// In a shared one ssh's other options are those of whoever was the first.
TEST(DefaultRemoteShellTest, EachHasAConnectionOfItsOwn) {
  const std::string command = DefaultRemoteShell(Seconds(600));
  EXPECT_NE(command.find(" -o ControlPath=none "), std::string::npos) << command;
  EXPECT_TRUE(command.ends_with(" -o ServerAliveInterval=5 -o ServerAliveCountMax=120")) << command;
}

// Such as sshd with its MaxStartups.
TEST(ProcessClusterTest, OnlySomeRemoteShellsToAHostAreOnTheirWay) {
  const TemporaryDirectory directory;
  RemoteShell shell;
  shell.command = {"/bin/sh", "-c",
                   "cd " + directory.path() +
                       " && touch on.$$ && ls on.* | wc -l >> counts; sleep 0.2; rm on.$$; "
                       "eval \"$1\""};
  shell.directory = directory.path();
  ProcessClusterOptions options;
  options.job.mutable_cluster()->set_workers(12);
  options.job.mutable_cluster()->set_servers(1);
  options.hosts.assign(static_cast<size_t>(MachinesOf(options.job)) + 1, "node0");
  options.start = [&](int, const DaemonCommand& daemon) {
    RemoteCommand command;
    command.name = daemon.name;
    command.host = "node0";
    command.command = {"/bin/true"};
    command.is_daemon = false;
    command.log = directory.Path(daemon.name + ".log");
    return StartRemotely(shell, command);
  };
  RunProcesses(options);
  std::istringstream counts(ReadRegularFile(directory.Path("counts"), ExitCode::kFailure));
  int connections = 0;
  for (int count = 0; counts >> count; ++connections) EXPECT_LE(count, kMostConnecting);
  EXPECT_EQ(connections, 14);
}

// csh takes no newline and no ! in quotes, and fish reads a backslash before one.
TEST(LoginShellCommandTest, AnyShellTakesIt) {
  const std::string said = "it's !! \\' \"$HOME\" `id` %s \\n \xc3\xbc\n\n1";
  const std::string command = LoginShellCommand("printf %s " + ShellQuoted(said));
  const std::string quoted = command.substr(command.find('\'') + 1);
  EXPECT_EQ(quoted.find_first_of("!\n'"), quoted.size() - 1) << command;
  EXPECT_EQ(quoted.find("\\'"), std::string::npos) << command;

  const TemporaryDirectory directory;
  ChildOptions child;
  child.command = {"/bin/sh", "-c", command};
  child.output = directory.Path("said");
  EXPECT_TRUE(ChildProcess(std::move(child)).Wait().ok());
  EXPECT_EQ(ReadRegularFile(directory.Path("said"), ExitCode::kFailure), said);
}

}  // namespace
}  // namespace poseidon
