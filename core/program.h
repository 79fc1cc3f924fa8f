// What every program of this project does around its own work: logs, signals, exit codes.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/process/signal_effect.h"
#include "core/time.h"

namespace poseidon {

// Runs `body` and returns main's result. Ends with kFailure at once if the system lets this process
// have too little (core/process/resource_limits.h). Logs go to standard error. An Error ends in one
// line, "NAME: message", and its exit code; anything else that is thrown likewise with kFailure,
// and so does standard output that can't be written though `body` succeeds, unless it has that in
// the hands of a BoundedOutput. A reader that closes the pipe of the standard output is no error:
// the rest is not shown (core/process/standard_output.h).
int RunProgram(const std::string& name, const char* argv0, const std::function<ExitCode()>& body);

// Ends the process with the error's line and code, as RunProgram does, but at once: no destructor
// is run, and nobody is waited for, not even a disk for more than two seconds. For whoever holds
// what can no longer be given back, as a device that has failed.
[[noreturn]] void EndAtOnce(const std::string& name, const Error& error);

// From now on SIGINT, SIGTERM and SIGHUP end the process at once with kInterrupted, without what it
// was writing (core/process/unfinished_file.h): for the time before there is anything to end in an
// orderly way. RunProgram does it; a main that does something
// before that calls it first. SIGHUP stays ignored where it is (nohup).
void EndOnSignals();

// The effect that a flag, "sigint_effect", names. Throws ConfigError if there is none such.
SignalEffect ParseSignalEffect(const std::string& flag, const std::string& text);

// SIGINT, SIGTERM and SIGHUP as something a loop can ask about. While an Interruption lives they do
// not end the process; at most one lives at a time. The second signal, after Pending has told of
// the first, ends the process at once, as does any after the Interruption's life. A signal whose
// effect is a snapshot or a stop is a request instead; after a stop was taken, the next signal that
// asked for one is as any other. If nobody asks, as the thread is busy or hangs, the second of the
// signals that are to end or to stop the program, of whichever kind, ends the process at once, if
// it does not come right after the first. Belongs to one thread, but for Asked.
class Interruption {
 public:
  // Of two signals that are meant as one, as a terminal's and the parent's, the second comes
  // sooner; a loop asks more often.
  static constexpr Duration kPatience = Seconds(2);
  // Of a program with which the processes that it watches over die. It asks seldom where one of
  // them reads nothing of what it is told (ChildProcess::kReadingDeadline), or a disk is slow.
  static constexpr Duration kSupervisorPatience = Seconds(90);

  struct Request {
    int signal = 0;
    SignalEffect effect = SignalEffect::kStop;  // or kSnapshot
  };

  // `patience`: how long after the first the second signal ends the process that has not asked.
  explicit Interruption(SignalEffects effects = {}, Duration patience = kPatience);
  ~Interruption();
  Interruption(const Interruption&) = delete;
  Interruption& operator=(const Interruption&) = delete;

  // Whether a signal has come that is to end the program. Does not wait.
  bool Pending();
  // Likewise, of signals that were to end the program from the first. From any thread, as the one
  // that Pending belongs to may hang.
  bool Asked() const;
  // What a signal has asked for since the last call. Does not wait. A signal that has come twice
  // since then asks once.
  std::optional<Request> TakeRequest();

 private:
  const SignalEffects first_effects_;
  SignalEffects effects_;
  bool pending_ = false;
};

// The error to throw when Pending.
Error Interrupted();

// Waits so long. Throws Interrupted() when a signal asks for the program's end meanwhile, at once
// or after an iteration.
void Pause(Duration duration, Interruption& interruption);

}  // namespace poseidon
