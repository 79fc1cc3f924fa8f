#include "launch/daemon_keeper.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include "core/steady_now.h"
#include "launch/restart_policy.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// A signal is passed on, and a death seen, as soon as people notice.
constexpr Duration kPollInterval = std::chrono::milliseconds(50);

std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

class Keeper {
 public:
  explicit Keeper(const KeepOptions& options)
      : options_(options), backoff_(SteadyNow()), daemon_(Start()) {}

  ExitStatus Run() {
    while (true) {
      ExitStatus status = AwaitEnd();
      if (stopped_ || !MayStartAgain(status)) return status;
      const Time now = SteadyNow();
      const Time due = backoff_.AfterDeath(now);
      Say(RestartNews(daemon_.name(), status, due - now));
      AwaitTime(due);
      while (!stopped_ && !StartAnother()) {
      }
      if (stopped_) return {.code = static_cast<int>(ExitCode::kInterrupted)};
    }
  }

 private:
  ChildProcess Start() {
    ChildOptions child;
    child.name = NameOf(options_.command.front());
    child.command = options_.command;
    child.inherit_output = true;
    const uint64_t another = DrawRandom();
    if (options_.says_whom_it_replaces) {
      child.command.push_back("--incarnation=" + std::to_string(another));
      if (incarnation_ != 0) child.command.push_back("--replaces=" + std::to_string(incarnation_));
    }
    ChildProcess process(std::move(child));
    incarnation_ = another;
    return process;
  }

  // False, and a while later, if it can't be started now, as on a machine without memory.
  bool StartAnother() {
    const Time now = SteadyNow();
    backoff_.Restarted(now);
    try {
      daemon_ = Start();
      return true;
    } catch (const Error& error) {
      const Time due = backoff_.AfterDeath(now);
      Say(NotStartedNews(daemon_.name(), error, due - now));
      AwaitTime(due);
      return false;
    }
  }

  ExitStatus AwaitEnd() {
    while (!daemon_.Poll()) {
      PassOnSignal();
      std::this_thread::sleep_for(kPollInterval);
    }
    PassOnSignal();  // one that came to both: the daemon may have died of it
    return *daemon_.Poll();
  }

  void AwaitTime(Time due) {
    while (!stopped_ && SteadyNow() < due) {
      PassOnSignal();
      std::this_thread::sleep_for(kPollInterval);
    }
  }

  // The daemon knows what its signals mean; a second one for its end is to end it at once.
  void PassOnSignal() {
    if (options_.interruption == nullptr) return;
    if (const auto request = options_.interruption->TakeRequest()) {
      stopped_ |= request->effect == SignalEffect::kStop;
      daemon_.Signal(request->signal);
    }
    if (pending_ || !options_.interruption->Pending()) return;
    pending_ = stopped_ = true;
    daemon_.RequestEnd();
  }

  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  const KeepOptions& options_;
  uint64_t incarnation_ = 0;  // of the present process; 0: none yet, or it has none
  RestartBackoff backoff_;
  ChildProcess daemon_;
  bool stopped_ = false;  // somebody has asked for the daemon's end
  bool pending_ = false;  // twice
};

}  // namespace

SignalEffects KeptSignalEffects() {
  return {.sigint = SignalEffect::kStop,
          .sighup = SignalEffect::kSnapshot,
          .sigterm = SignalEffect::kStop};
}

ExitStatus KeepDaemon(const KeepOptions& options) { return Keeper(options).Run(); }

}  // namespace poseidon
