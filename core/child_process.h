// ChildProcess: a program that this one has started and answers for.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/time.h"

namespace poseidon {

class ChildProcess;
class CopiedLog;

// How a process ended.
struct ExitStatus {
  int code = 0;    // if it exited by itself
  int signal = 0;  // if a signal ended it; else 0
  // What ToString says, where somebody knows more than the system does.
  std::string words = {};
  bool ok() const { return code == 0 && signal == 0; }
  // "exited with code 3" or "was killed by signal 9".
  std::string ToString() const;
};

struct ChildOptions {
  std::string name;                  // for messages
  std::vector<std::string> command;  // the program's path and its arguments
  std::string log;                   // file for standard error; empty: this program's
  // If not empty, the process writes its log by way of this program, which looks meanwhile for a
  // line that begins so (core/process/copied_log.h). Poll and Wait do it: one that nobody polls
  // waits when it has written as much as a pipe takes.
  std::string log_mark = {};
  // File for standard output: if empty, it goes where standard error does, or to this program's
  // with `inherit_output`, where SIGPIPE does not end it if it does not end this program.
  std::string output;
  bool inherit_output = false;
  // Its standard input is a pipe that Write fills; else it reads nothing.
  bool piped_input = false;
  // What its end means, where it stands for another process; empty: what it is.
  std::function<ExitStatus(const ExitStatus&, const ChildProcess&)> interpret = {};
};

// Movable; belongs to the thread that made it, with whose end the kernel kills the process, however
// that comes. The process is in a process group of its own, so that Ctrl-C reaches this program
// alone; where it writes to this one's terminal, that does not stop it (SIGTTOU). The destructor
// kills it, as Signal does.
class ChildProcess {
 public:
  // A connection that is to be made first takes seconds, and nodes have a minute to join a job.
  static constexpr Duration kReadingDeadline = Seconds(60);

  // Throws Error if it can't be started.
  explicit ChildProcess(ChildOptions options);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  // What was here lives and dies with `other` from now on.
  ChildProcess& operator=(ChildProcess&& other) noexcept;

  const std::string& name() const { return options_.name; }
  const std::string& log() const { return options_.log; }
  // Whether the line of `log_mark` has come, as far as Poll has seen.
  bool log_has_mark() const;
  pid_t pid() const { return pid_; }

  // Looks whether it has ended; does not wait.
  const std::optional<ExitStatus>& Poll();
  // Waits as long as it takes.
  const ExitStatus& Wait();
  // SIGKILL is for all in its group, as what it has started can't be told by it any more.
  void Signal(int signal);

  // With piped_input: waits until all is in the pipe or nobody reads it any more. Throws Error with
  // kDeadlineExceeded that names the process where it has read nothing for so long.
  void Write(std::string_view text, Duration deadline = kReadingDeadline);
  // Asks it to end: closes the piped input, or sends SIGINT where there is none.
  void RequestEnd();

 private:
  void CloseInput();
  Error ReadsNothing(Duration silence, size_t left, size_t all) const;

  ChildOptions options_;
  pid_t pid_ = -1;
  int input_ = -1;                         // the pipe's end
  std::unique_ptr<CopiedLog> copied_log_;  // if there is a log_mark
  std::optional<ExitStatus> status_;
};

// The path of a program that a shell would find, or that is where only root's does. Throws Error
// that names it if there is none.
std::string FindProgram(const std::string& name);

}  // namespace poseidon
