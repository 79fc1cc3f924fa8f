#include "transport/program.h"

#include <glog/logging.h>
#include <signal.h>

#include <atomic>
#include <iostream>

namespace poseidon {
namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM};

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
  for (const int signal : kEndingSignals) PCHECK(sigaction(signal, &action, nullptr) == 0);
}

Interruption::~Interruption() { RestoreDefaults(); }

void Interruption::RestoreDefaults() {
  for (const int signal : kEndingSignals) ::signal(signal, SIG_DFL);
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
