#include "transport/program.h"

#include <glog/logging.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <iostream>

namespace poseidon {
namespace {

sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

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
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  descriptor_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  PCHECK(descriptor_ >= 0) << "signalfd";
}

Interruption::~Interruption() {
  close(descriptor_);
  const sigset_t signals = EndingSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

bool Interruption::Pending() {
  signalfd_siginfo info;
  if (!pending_ && read(descriptor_, &info, sizeof info) == sizeof info) {
    pending_ = true;
    const sigset_t signals = EndingSignals();
    pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  }
  return pending_;
}

Error Interrupted() { return Error(ExitCode::kInterrupted, "interrupted by a signal"); }

}  // namespace poseidon
