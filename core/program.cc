#include "core/program.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>

#include "core/process/blocked_signals.h"
#include "core/process/resource_limits.h"
#include "core/process/standard_output.h"
#include "core/process/unfinished_file.h"
#include "core/steady_now.h"
#include "core/text/utf8.h"
#include "core/time.h"

namespace poseidon {
namespace {

// What a signal handler does and needs can only be kept where it finds it without an argument:
// when each signal came that nobody has asked for since, 0 if none did,
std::atomic<int64_t> signal_came[NSIG] = {};
// and after how many nanoseconds another one ends the process; kNeverEnds if it is not to.
std::atomic<int64_t> signal_patience[NSIG] = {};
constexpr int64_t kNeverEnds = Duration::max().count();
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler must not lock");

// Of one of kEndingSignals.
SignalEffect& EffectOf(SignalEffects& effects, int signal) {
  if (signal == SIGINT) return effects.sigint;
  return signal == SIGHUP ? effects.sighup : effects.sigterm;
}

// For what takes milliseconds where disks answer.
constexpr Duration kTimeForLastWords = Seconds(2);

// Besides what the processor's registers take: removing files, in the handler of EndOnSignals.
constexpr int64_t kHandlerStackBytes = 64 << 10;

// Gives the thread that first asks, which is the main thread, a stack for signal handlers, if it
// has none. Code that oneDNN makes at run time (2.6, its products of matrices) uses the stack
// pointer for memory of its own, so a handler that ran where that points to, in the midst of a
// product, would write over the heap below it.
void UseSignalStack() {
  static std::once_flag once;  // two threads can't share a stack
  std::call_once(once, [] {
    stack_t stack = {};
    PCHECK(sigaltstack(nullptr, &stack) == 0);
    if ((stack.ss_flags & SS_DISABLE) == 0) return;
    const int64_t bytes = sysconf(_SC_MINSIGSTKSZ) + kHandlerStackBytes;
    // It outlives all signals, so nobody frees it.
    static std::byte* const memory = new std::byte[bytes];
    stack = {};
    stack.ss_sp = memory;
    stack.ss_size = bytes;
    PCHECK(sigaltstack(&stack, nullptr) == 0);
  });
}

// From now on the ending signals call `handler`, on the main thread where the system has a choice.
void Handle(void (*handler)(int)) {
  UseSignalStack();
  // Not a signalfd: that needs the signals blocked in every thread, and libraries (OpenBLAS) start
  // threads before main does.
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  for (const int signal : kEndingSignals) {
    struct sigaction before = {};
    PCHECK(sigaction(signal, nullptr, &before) == 0);
    // nohup's promise. A shell's background job ignores SIGINT, too, but that is how its parent
    // asks a daemon to end.
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;
    PCHECK(sigaction(signal, &action, nullptr) == 0);
  }
}

// A file that this program opens must not become the standard stream that its parent has closed, as
// what is meant for people would then be written into it. Reading the output and writing the input
// fails, so that this is noticed.
void OccupyStandardStreams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    const int access = stream == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    PCHECK(open("/dev/null", access) == stream);
  }
}

// Writing to a pipe that nobody reads, and beyond the largest size of a file, is an error of that
// write and no reason to die.
void MakeWritesReportErrors() {
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
}

// Nothing that libraries have registered for the end is run: with too little memory OpenBLAS's
// never comes to its own.
void EndIfLimitsAreTooSmall(const std::string& name) {
  std::optional<std::string> shortage = FindShortage(ReadResourceLimits(), ReadResourceUse());
  if (!shortage) shortage = FindThreadShortage();
  if (!shortage) return;
  std::cerr << name << ": " << *shortage << std::endl;
  _exit(static_cast<int>(ExitCode::kFailure));
}

ExitCode RunBody(const std::string& name, const std::function<ExitCode()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    std::cerr << name << ": " << Printable(error.what()) << std::endl;
    return error.exit_code();
  } catch (const std::bad_alloc&) {
    std::cerr << name << ": not enough memory for what this was asked to do" << std::endl;
    return ExitCode::kFailure;
  } catch (const std::system_error& error) {
    std::cerr << name << ": " << Printable(error.what());
    if (error.code() == std::errc::resource_unavailable_try_again) {
      std::cerr << ": this user, or its control group, has as many threads as the system allows; "
                   "raise the limit (ulimit -u, or pids.max)";
    }
    std::cerr << std::endl;
    return ExitCode::kFailure;
  } catch (const std::exception& error) {
    std::cerr << name << ": " << Printable(error.what()) << std::endl;
    return ExitCode::kFailure;
  }
}

// A disk that does not answer may be why the process ends, and holds up whoever writes, or removes
// what is unfinished, there.
void EndAfterAll(int code) {
  try {
    std::thread([code] {
      std::this_thread::sleep_for(kTimeForLastWords);
      _exit(code);
    }).detach();
  } catch (const std::system_error&) {
    LOG(WARNING) << "there is no thread that could see to this process's end";
  }
}

// The same for a signal handler, which can't start a thread. The alarm kills: a handler of its own
// would have to wait for the thread that removes a file, as that waits for the disk.
void KillAfterAll() {
  ::signal(SIGALRM, SIG_DFL);
  sigset_t alarm_alone;
  sigemptyset(&alarm_alone);
  sigaddset(&alarm_alone, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_alone, nullptr);
  alarm(static_cast<unsigned>(ToSeconds(kTimeForLastWords)));
}

void EndAtSignal(int) {
  KillAfterAll();
  RemoveUnfinishedFiles();
  _exit(static_cast<int>(ExitCode::kInterrupted));
}

// For whoever asks about it. A thread that does not come to that may hang in a read from a disk
// that does not answer, and would leave its user no signal but SIGKILL.
void NoteSignal(int signal) {
  const int64_t now = SteadyNow().count();  // by clock_gettime, which a handler may call
  // Whoever asks again may do so by another one: Ctrl-C, and then kill.
  for (const int earlier : kEndingSignals) {
    const int64_t came = signal_came[earlier];
    if (came == 0 || signal_patience[earlier] == kNeverEnds) continue;
    if (now - came >= signal_patience[signal]) EndAtSignal(signal);
  }
  int64_t none = 0;
  signal_came[signal].compare_exchange_strong(none, now);
}

}  // namespace

int RunProgram(const std::string& name, const char* argv0, const std::function<ExitCode()>& body) {
  EndOnSignals();
  OccupyStandardStreams();
  MakeWritesReportErrors();
  EndIfLimitsAreTooSmall(name);
  FLAGS_logtostderr = true;
  google::InitGoogleLogging(argv0);
  StandardOutput output;
  ExitCode code = RunBody(name, body);
  if (const std::optional<std::string> why = output.Finish()) {
    std::cerr << name << ": can't write to standard output: " << *why << std::endl;
    if (code == ExitCode::kSuccess) code = ExitCode::kFailure;
  }
  google::ShutdownGoogleLogging();
  return static_cast<int>(code);
}

void EndAtOnce(const std::string& name, const Error& error) {
  EndAfterAll(static_cast<int>(error.exit_code()));
  std::cerr << name << ": " << error.what() << std::endl;
  google::FlushLogFiles(google::INFO);
  RemoveUnfinishedFiles();
  _exit(static_cast<int>(error.exit_code()));
}

void EndOnSignals() { Handle(EndAtSignal); }

SignalEffect ParseSignalEffect(const std::string& flag, const std::string& text) {
  if (const std::optional<SignalEffect> effect = FindSignalEffect(text)) return *effect;
  throw ConfigError("--" + flag + " is \"" + text + "\"; it must be snapshot, stop, none or end");
}

Interruption::Interruption(SignalEffects effects, Duration patience)
    : first_effects_(effects), effects_(effects) {
  for (const int signal : kEndingSignals) {
    const SignalEffect effect = EffectOf(effects_, signal);
    const bool ends = effect == SignalEffect::kEnd || effect == SignalEffect::kStop;
    signal_patience[signal] = ends ? patience.count() : kNeverEnds;
    signal_came[signal] = 0;
  }
  Handle(NoteSignal);
}

Interruption::~Interruption() { EndOnSignals(); }

bool Interruption::Pending() {
  for (const int signal : kEndingSignals) {
    if (pending_ || EffectOf(effects_, signal) != SignalEffect::kEnd) continue;
    if (signal_came[signal] == 0) continue;
    pending_ = true;
    EndOnSignals();
  }
  return pending_;
}

bool Interruption::Asked() const {
  SignalEffects effects = first_effects_;
  return std::ranges::any_of(kEndingSignals, [&effects](int signal) {
    return EffectOf(effects, signal) == SignalEffect::kEnd && signal_came[signal] != 0;
  });
}

std::optional<Interruption::Request> Interruption::TakeRequest() {
  for (const int signal : kEndingSignals) {
    const SignalEffect effect = EffectOf(effects_, signal);
    if (effect != SignalEffect::kStop && effect != SignalEffect::kSnapshot) continue;
    if (signal_came[signal].exchange(0) == 0) continue;
    if (effect == SignalEffect::kStop) {
      for (const int other : kEndingSignals) {
        SignalEffect& its = EffectOf(effects_, other);
        if (its == SignalEffect::kStop) its = SignalEffect::kEnd;
      }
    }
    return Request{signal, effect};
  }
  return std::nullopt;
}

Error Interrupted() { return Error(ExitCode::kInterrupted, "interrupted by a signal"); }

void Pause(Duration duration, Interruption& interruption) {
  const Time end = SteadyNow() + duration;
  while (SteadyNow() < end) {
    const auto request = interruption.TakeRequest();
    if (interruption.Pending() || (request && request->effect == SignalEffect::kStop)) {
      throw Interrupted();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace poseidon
