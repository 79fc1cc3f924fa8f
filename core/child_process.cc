#include "core/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include "core/awake_clock.h"
#include "core/process/blocked_signals.h"
#include "core/process/copied_log.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

// 127 is the shell's code for a program that can't be started.
constexpr int kCanNotStart = 127;

// Where programs are for who has no PATH, as for a shell without one.
constexpr const char* kUsualPath = "/usr/local/bin:/usr/bin:/bin";
// Where the programs of administrators are, which other users' PATH lacks.
constexpr const char* kRootsPath = "/usr/sbin:/sbin";

// Between two looks at what a process has said.
constexpr std::chrono::milliseconds kCopyInterval(20);

// What of the time between two looks at a process that reads nothing counts at most: where all is
// suspended for hours (AwakeClock), the process could not read either.
constexpr Duration kLongestLook = Seconds(1);

// A descriptor that is closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void Reset(int value) { value_ = value; }
  int value() const { return value_; }
  int Release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

[[noreturn]] void Fail(const std::string& what) {
  throw Error(ExitCode::kFailure, "can't " + what + ": " + std::strerror(errno));
}

// -1 for no path. Somebody may empty a log that grows, which is then written from its beginning.
int OpenToWrite(const std::string& path) {
  if (path.empty()) return -1;
  constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC;
  const int descriptor = open(path.c_str(), kFlags, 0666);
  if (descriptor < 0) Fail("write " + path);
  return descriptor;
}

struct Streams {
  int input = -1;   // -1: nothing to read
  int output = -1;  // -1: the parent's
  int error = -1;   // -1: the parent's
};

// In the child, between fork and exec: only async-signal-safe calls. All signals are blocked: the
// parent's handlers would take one that is meant for the program, and nobody would know of it.
[[noreturn]] void Become(char* const* command, const Streams& streams, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCanNotStart);  // it died before the line above
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction inherited = {};
    sigaction(signal, nullptr, &inherited);
    if (inherited.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // RunProgram ignores these, and programs inherit that. One that writes where the parent does goes
  // on as that does when nobody reads there any more: it may have done what it is for already.
  if (streams.output >= 0) ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  // Where it writes to the parent's terminal: as a group of its own it would be stopped at its
  // first line, if `stty tostop` has been said there.
  if (streams.output < 0 || streams.error < 0) ::signal(SIGTTOU, SIG_IGN);
  if (streams.error >= 0) dup2(streams.error, STDERR_FILENO);
  if (streams.output >= 0) dup2(streams.output, STDOUT_FILENO);
  dup2(streams.input >= 0 ? streams.input : open("/dev/null", O_RDONLY), STDIN_FILENO);
  execv(command[0], command);
  const char message[] = "can't start the program\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
  _exit(kCanNotStart);
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (!words.empty()) return words;
  if (signal != 0) {
    const char* const name = sigabbrev_np(signal);
    return "was killed by signal " + std::to_string(signal) +
           (name == nullptr ? "" : " (SIG" + std::string(name) + ")");
  }
  return "exited with code " + std::to_string(code);
}

ChildProcess::ChildProcess(ChildOptions options) : options_(std::move(options)) {
  Descriptor log(OpenToWrite(options_.log));
  const Descriptor output(OpenToWrite(options_.output));
  if (!options_.log_mark.empty()) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) Fail("make a pipe");
    copied_log_ = std::make_unique<CopiedLog>(ends[0], log.Release(), options_.log_mark);
    log.Reset(ends[1]);
  }
  Descriptor readable;
  Descriptor writable;
  if (options_.piped_input) {
    // A pair of sockets, as writing to one whose other end is gone need not be a signal.
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) Fail("make a pipe");
    readable.Reset(ends[0]);
    writable.Reset(ends[1]);
  }
  Streams streams = {readable.value(), output.value(), log.value()};
  if (options_.output.empty() && !options_.inherit_output) {
    streams.output = options_.log.empty() ? STDERR_FILENO : log.value();
  }
  std::vector<char*> pointers;
  for (std::string& argument : options_.command) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  const BlockedSignals blocked;
  pid_ = fork();
  if (pid_ == 0) Become(pointers.data(), streams, parent);
  if (pid_ < 0) Fail("start " + options_.name);
  input_ = writable.Release();
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(options_, other.options_);
  std::swap(pid_, other.pid_);
  std::swap(input_, other.input_);
  std::swap(copied_log_, other.copied_log_);
  std::swap(status_, other.status_);
  return *this;
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : options_(std::move(other.options_)),
      pid_(std::exchange(other.pid_, -1)),
      input_(std::exchange(other.input_, -1)),
      copied_log_(std::move(other.copied_log_)),
      status_(std::move(other.status_)) {}

ChildProcess::~ChildProcess() {
  CloseInput();
  if (pid_ < 0 || Poll()) return;
  Signal(SIGKILL);
  waitpid(pid_, nullptr, 0);
}

bool ChildProcess::log_has_mark() const { return copied_log_ && copied_log_->has_mark(); }

const std::optional<ExitStatus>& ChildProcess::Poll() {
  if (copied_log_ && !status_) copied_log_->Copy();
  siginfo_t ended = {};
  if (status_ || pid_ < 0 ||
      waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      ended.si_pid != pid_) {
    return status_;
  }
  // What it has started goes with it. The number is its group's until it has been waited for.
  kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  status_ =
      WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
  if (copied_log_) copied_log_->Copy();
  if (options_.interpret) status_ = options_.interpret(*status_, *this);
  return status_;
}

const ExitStatus& ChildProcess::Wait() {
  siginfo_t ignored;
  while (!Poll()) {
    if (copied_log_) {
      std::this_thread::sleep_for(kCopyInterval);
    } else {
      waitid(P_PID, static_cast<id_t>(pid_), &ignored, WEXITED | WNOWAIT);
    }
  }
  return *status_;
}

void ChildProcess::Signal(int signal) {
  if (Poll()) return;
  // Its group is its own when it has come to that.
  if (signal == SIGKILL && kill(-pid_, signal) == 0) return;
  kill(pid_, signal);
}

void ChildProcess::Write(std::string_view text, Duration deadline) {
  const size_t all = text.size();
  AwakeClock clock;
  Time since = clock.Look(SteadyNow(), kLongestLook);
  while (!text.empty()) {
    const ssize_t written = send(input_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const int error = written < 0 ? errno : 0;
    const Time now = clock.Look(SteadyNow(), kLongestLook);
    if (written > 0) {
      text.remove_prefix(static_cast<size_t>(written));
      since = now;
    } else if (error != EINTR) {
      // Why it has ended is in its log, which it may have to write before it reads on.
      if (error != EAGAIN || Poll()) return;
      if (now - since > deadline) throw ReadsNothing(deadline, text.size(), all);
      pollfd room = {input_, POLLOUT, 0};
      poll(&room, 1, static_cast<int>(kCopyInterval.count()));
    }
  }
}

Error ChildProcess::ReadsNothing(Duration silence, size_t left, size_t all) const {
  std::ostringstream said;
  said << options_.name << " has read nothing for " << ToSeconds(silence)
       << " s of what it is told, and " << left << " of " << all
       << " bytes are left; see whether it hangs";
  if (!options_.log.empty()) said << " (log: " << options_.log << ")";
  return {ExitCode::kDeadlineExceeded, said.str()};
}

void ChildProcess::RequestEnd() {
  if (input_ >= 0) return CloseInput();
  Signal(SIGINT);
}

void ChildProcess::CloseInput() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

std::string FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::istringstream directories(std::string(path == nullptr ? kUsualPath : path) + ":" +
                                 kRootsPath);
  std::string directory;
  while (std::getline(directories, directory, ':')) {
    std::string candidate = directory + "/" + name;
    if (!directory.empty() && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  throw Error(ExitCode::kFailure, "there is no program " + name + "; install it");
}

}  // namespace poseidon
