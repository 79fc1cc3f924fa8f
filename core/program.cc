#include "core/program.h"

#include <glog/logging.h>
#include <signal.h>

#include <atomic>
#include <iostream>

namespace poseidon {
namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// What a signal handler does can only be kept where it finds it without an argument.
std::atomic<bool> signal_came = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler must not lock");

}  // namespace

int RunProgram(const std::string& name, const char* argv0, const std::function<ExitCode()>& body) {
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv0);
  ExitCode code = ExitCode::kFailure;
  try {
    code = body();
  } catch (const Error& error) {
    std::cerr << name << ": " << error.what() << std::endl;
    code = error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << std::endl;
  }
  google::ShutdownGoogleLogging();
  return static_cast<int>(code);
}

Interruption::Interruption() {
  signal_came = false;
  // Not a signalfd: that needs the signals blocked in every thread, and libraries (OpenBLAS) start
  // threads before main does.
  struct sigaction action = {};
  action.sa_handler = [](int) { signal_came = true; };
  action.sa_flags = SA_RESTART;
  for (const int signal : kEndingSignals) {
    struct sigaction before = {};
    PCHECK(sigaction(signal, &action, &before) == 0);
    // nohup's promise. A shell's background job ignores SIGINT, too, but that is how its parent
    // asks a daemon to end.
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) ::signal(signal, SIG_IGN);
  }
}

Interruption::~Interruption() { RestoreDefaults(); }

void Interruption::RestoreDefaults() {
  for (const int signal : kEndingSignals) {
    struct sigaction now = {};
    PCHECK(sigaction(signal, nullptr, &now) == 0);
    if (now.sa_handler != SIG_IGN) ::signal(signal, SIG_DFL);
  }
}

bool Interruption::Pending() {
  if (!pending_ && signal_came) {
    pending_ = true;
    RestoreDefaults();
  }
  return pending_;
}

Error Interrupted() { return Error(ExitCode::kInterrupted, "interrupted by a signal"); }

}  // namespace poseidon
