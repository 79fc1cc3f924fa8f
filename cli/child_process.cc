#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace poseidon {
namespace {

// 127 is the shell's code for a program that can't be started.
constexpr int kCanNotStart = 127;

// In the child, between fork and exec: only async-signal-safe calls.
[[noreturn]] void Become(char* const* arguments, int log, bool inherit_output, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kCanNotStart);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(log, STDERR_FILENO);
  if (!inherit_output) dup2(log, STDOUT_FILENO);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  execv(arguments[0], arguments);
  const char message[] = "can't start the program\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message, sizeof message - 1);
  _exit(kCanNotStart);
}

}  // namespace

std::string ExitStatus::ToString() const {
  if (signal != 0) return "was killed by signal " + std::to_string(signal);
  return "exited with code " + std::to_string(code);
}

ChildProcess::ChildProcess(std::string name, const std::vector<std::string>& arguments,
                           const std::string& log, bool inherit_output)
    : name_(std::move(name)), log_(log) {
  const int descriptor = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    throw Error(ExitCode::kFailure, "can't write " + log + ": " + std::strerror(errno));
  }
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) {
    pointers.push_back(const_cast<char*>(argument.c_str()));
  }
  pointers.push_back(nullptr);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) Become(pointers.data(), descriptor, inherit_output, parent);
  const int cause = errno;
  close(descriptor);
  if (pid_ < 0) {
    throw Error(ExitCode::kFailure, "can't start " + name_ + ": " + std::strerror(cause));
  }
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : name_(std::move(other.name_)),
      log_(std::move(other.log_)),
      pid_(std::exchange(other.pid_, -1)),
      status_(std::move(other.status_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || Poll()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

const std::optional<ExitStatus>& ChildProcess::Poll() {
  int status = 0;
  if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ =
        WIFSIGNALED(status) ? ExitStatus{0, WTERMSIG(status)} : ExitStatus{WEXITSTATUS(status), 0};
  }
  return status_;
}

void ChildProcess::Signal(int signal) {
  if (!Poll()) kill(pid_, signal);
}

}  // namespace poseidon
