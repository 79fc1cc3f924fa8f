// Keeping one daemon of a job alive on its machine: whoever starts daemons by hand, or by a system
// that does not start them again, puts this before (`poseidon keep -- DAEMON ...`).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/program.h"

namespace poseidon {

struct KeepOptions {
  // The daemon's path and its arguments. Each process's output is this program's.
  std::vector<std::string> command;
  // Whether the daemon takes --incarnation and --replaces, which make the scheduler give its place
  // to the next process at once: servers and workers do.
  bool says_whom_it_replaces = true;
  Interruption* interruption = nullptr;  // may be null; of KeptSignalEffects()
  // News for people, a sentence each; may be empty.
  std::function<void(const std::string&)> say;
};

// With these a keeper hears of each signal that it passes on.
SignalEffects KeptSignalEffects();

// Runs the daemon, and another process of it whenever MayStartAgain (launch/restart_policy.h).
// SIGINT, SIGTERM and SIGHUP are passed on to the daemon; after SIGINT or SIGTERM it is not started
// again. Returns how the last process ended; one with kInterrupted if a signal came while there was
// none. Throws Error if the daemon can't be started.
ExitStatus KeepDaemon(const KeepOptions& options);

}  // namespace poseidon
