// ChildProcess: a daemon that this program started and answers for.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace poseidon {

// How a process ended.
struct ExitStatus {
  int code = 0;    // if it exited by itself
  int signal = 0;  // if a signal ended it; else 0
  bool ok() const { return code == 0 && signal == 0; }
  // "exited with code 3" or "was killed by signal 9".
  std::string ToString() const;
};

// Movable. The process is in a process group of its own, so that Ctrl-C reaches this program alone,
// and is killed by the kernel when this program dies, however it dies. The destructor kills it.
class ChildProcess {
 public:
  // Starts `arguments` (the program first). Standard error goes to the file `log`, standard output
  // too unless `inherit_output`. Throws Error if it can't be started.
  ChildProcess(std::string name, const std::vector<std::string>& arguments, const std::string& log,
               bool inherit_output);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  const std::string& name() const { return name_; }
  const std::string& log() const { return log_; }
  pid_t pid() const { return pid_; }

  // Looks whether it has ended; does not wait.
  const std::optional<ExitStatus>& Poll();
  void Signal(int signal);

 private:
  std::string name_;
  std::string log_;
  pid_t pid_ = -1;
  std::optional<ExitStatus> status_;
};

}  // namespace poseidon
