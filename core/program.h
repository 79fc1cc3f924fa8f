// What every program of this project does around its own work: logs, signals, exit codes.
#pragma once

#include <functional>
#include <string>

#include "core/error.h"

namespace poseidon {

// Runs `body` and returns main's result. Logs go to standard error. An Error ends in one line,
// "NAME: message", and its exit code; anything else that is thrown likewise with kFailure.
int RunProgram(const std::string& name, const char* argv0, const std::function<ExitCode()>& body);

// SIGINT and SIGTERM as something a loop can ask about. While an Interruption lives they do not end
// the process; at most one lives at a time. The second signal, after Pending has told of the first,
// ends the process at once. Belongs to one thread.
class Interruption {
 public:
  Interruption();
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Whether a signal has come. Does not wait.
  bool Pending();

 private:
  static void RestoreDefaults();

  bool pending_ = false;
};

// The error to throw when Pending.
Error Interrupted();

}  // namespace poseidon
