#include "launch/daemon_watch.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <fstream>
#include <set>
#include <thread>

#include "core/steady_now.h"

namespace poseidon {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(50);
// What a daemon needs to end once it is told to: the last messages may linger for 2 s.
constexpr Duration kEndingTime = Seconds(5);
// The same where nobody is in a hurry: eight workers that ended a job together on two cores, which
// others wanted, too, took longer than 5 s, and a job that is done is not to be called failed.
constexpr Duration kPatientEndingTime = Seconds(30);
// A daemon that ended by itself has told the scheduler, if it had joined; news travels fast.
constexpr Duration kNewsTime = Seconds(2);

constexpr Time kNever = Time::max();

class Watch {
 public:
  Watch(std::vector<ChildProcess>& daemons, const WatchOptions& options)
      : daemons_(daemons),
        options_(options),
        too_late_(options.deadline == Duration::max() ? kNever : SteadyNow() + options.deadline) {}

  WatchResult Run() {
    while (AnyAlive()) {
      const Time now = SteadyNow();
      NoticeInterruption(now);
      NoticeDeadline(now);
      NoticeFailure(now);
      // A scheduler that ends by itself has told all the others that the job is over.
      if (const auto& scheduler = daemons_.front().Poll(); scheduler && scheduler->signal == 0) {
        give_up_ = std::min(give_up_, now + kPatientEndingTime);
      }
      EndWhoIsLate(now);
      std::this_thread::sleep_for(kPollInterval);
    }
    return Result();
  }

 private:
  void NoticeInterruption(Time now) {
    if (interrupted_ || options_.interruption == nullptr || !options_.interruption->Pending()) {
      return;
    }
    interrupted_ = true;
    Say("interrupted; ending the job");
    daemons_.front().RequestEnd();
    give_up_ = now + kEndingTime;
  }

  void NoticeDeadline(Time now) {
    if (now < too_late_) return;
    too_late_ = kNever;
    late_ = true;
    Say("the job takes too long; ending it");
    daemons_.front().RequestEnd();
    give_up_ = std::min(give_up_, now + kEndingTime);
  }

  void NoticeFailure(Time now) {
    ChildProcess* const failed = FirstFailure();
    if (failed == nullptr || give_up_ != kNever) return;
    give_up_ = now + options_.heartbeat_deadline + kEndingTime;
    if (failed->Poll()->signal == 0) stop_asking_ = now + kNewsTime;
    Say(failed->name() + " " + failed->Poll()->ToString() + "; waiting for the others to end");
  }

  void EndWhoIsLate(Time now) {
    if (now >= stop_asking_) {
      stop_asking_ = kNever;
      daemons_.front().RequestEnd();
    }
    if (now >= give_up_ && kill_at_ == kNever) {
      kill_at_ = now + kEndingTime;
      SignalAll(SIGTERM);
    }
    if (now >= kill_at_) SignalAll(SIGKILL);
  }

  // Polls all; true while one lives.
  bool AnyAlive() {
    bool alive = false;
    for (ChildProcess& daemon : daemons_) alive |= !daemon.Poll().has_value();
    return alive;
  }

  // The first daemon that ended badly, if any has.
  ChildProcess* FirstFailure() {
    for (ChildProcess& daemon : daemons_) {
      if (daemon.Poll() && !daemon.Poll()->ok()) return &daemon;
    }
    return nullptr;
  }

  void SignalAll(int signal) {
    for (ChildProcess& daemon : daemons_) daemon.Signal(signal);
  }

  WatchResult Result() {
    if (interrupted_) return {ExitCode::kInterrupted, {}};
    if (late_) return {ExitCode::kDeadlineExceeded, {}};
    if (FirstFailure() == nullptr) return {};
    // Those who only lost a peer repeat what the scheduler says; the others have their own story.
    WatchResult result = {ExitCode::kPeerLost, {}};
    // The same code comes from the same cause: one of each is enough.
    std::set<int> explained = {static_cast<int>(ExitCode::kInterrupted)};
    for (size_t i = 0; i < daemons_.size(); ++i) {
      const ExitStatus& status = *daemons_[i].Poll();
      if (status.ok() || status.code == static_cast<int>(ExitCode::kPeerLost)) continue;
      if (status.signal == 0 && !explained.insert(status.code).second) continue;
      result.culprits.push_back(i);
      if (status.signal == 0 && result.code == ExitCode::kPeerLost) {
        result.code = static_cast<ExitCode>(status.code);
      }
    }
    for (size_t i = 0; i < daemons_.size(); ++i) {
      if (daemons_[i].Poll()->code != static_cast<int>(ExitCode::kPeerLost)) continue;
      result.culprits.push_back(i);
      break;
    }
    return result;
  }

  void Say(const std::string& text) const {
    if (options_.say) options_.say(text);
  }

  std::vector<ChildProcess>& daemons_;
  const WatchOptions& options_;
  Time too_late_;
  Time give_up_ = kNever;      // when to stop waiting for the others' own end
  Time stop_asking_ = kNever;  // when to end the scheduler, because a node never joined
  Time kill_at_ = kNever;
  bool interrupted_ = false;
  bool late_ = false;
};

}  // namespace

WatchResult WatchDaemons(std::vector<ChildProcess>& daemons, const WatchOptions& options) {
  return Watch(daemons, options).Run();
}

std::string LastLines(const std::string& path, size_t most) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > most) lines.pop_front();
  }
  std::string text;
  for (const std::string& last : lines) text += last + "\n";
  return text;
}

}  // namespace poseidon
