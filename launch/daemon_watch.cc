#include "launch/daemon_watch.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "core/files/log_lines.h"
#include "core/steady_now.h"
#include "core/text/utf8.h"
#include "launch/restart_policy.h"

namespace poseidon {
namespace {

constexpr Duration kPollInterval = std::chrono::milliseconds(50);
// What a daemon needs to end once it is told to: the last messages may linger for 2 s.
constexpr Duration kEndingTime = Seconds(5);
// The same where nobody is in a hurry: eight workers that ended a job together on two cores, which
// others wanted, too, took longer than 5 s, and a job that is done is not to be called failed.
constexpr Duration kPatientEndingTime = Seconds(30);
// What those that an ended scheduler has told of the end may still have to do; whoever had not
// joined is not told.
constexpr Duration kToldTime = std::chrono::milliseconds(200);
// A daemon that ended by itself has told the scheduler, if it had joined; news travels fast.
constexpr Duration kNewsTime = Seconds(2);

// What a scheduler that is started needs until it knows what its signals mean.
constexpr Duration kStartingTime = Seconds(2);

// Between two looks at whom the scheduler has given up; others wait for who takes the place.
constexpr Duration kGivenUpInterval = std::chrono::milliseconds(500);

constexpr Time kNever = Time::max();

class Watch {
 public:
  Watch(std::vector<ChildProcess>& daemons, const WatchOptions& options)
      : daemons_(daemons),
        options_(options),
        restarts_(daemons.size()),
        too_late_(options.deadline == Duration::max() ? kNever : SteadyNow() + options.deadline) {
    restarts_.front().due = SteadyNow();
  }

  WatchResult Run() {
    // A scheduler that was killed when the others had ended has not told yet how the job ended.
    while (AnyAlive() || IsToStartAgain(0)) {
      const Time now = SteadyNow();
      PassOnRequest();
      NoticeInterruption(now);
      NoticeDeadline(now);
      EndGivenUp(now);
      StartAgain(now);
      NoticeDispensable();
      NoticeFailure(now);
      // A scheduler that ends by itself has told all the others that the job is over.
      if (const auto& scheduler = daemons_.front().Poll(); scheduler && scheduler->signal == 0) {
        give_up_ = std::min(give_up_, now + kPatientEndingTime);
      }
      EndWhoHasNotJoined(now);
      EndWhoCameTooLate(now);
      EndWhoIsLate(now);
      std::this_thread::sleep_for(kPollInterval);
    }
    WatchResult result = Result();
    result.stopped = stopped_;
    return result;
  }

 private:
  // The scheduler knows what its signals mean.
  void PassOnRequest() {
    if (options_.interruption == nullptr) return;
    if (const auto request = options_.interruption->TakeRequest()) {
      const bool stops = request->effect == SignalEffect::kStop;
      stopped_ |= stops;
      Say(stops ? "training ends after an iteration; once more ends it at once"
                : "a snapshot is to be written");
      requests_.push_back(request->signal);
      if (stops) stop_signal_ = request->signal;
    }
    if (!SchedulerIsReady()) return;
    for (const int signal : std::exchange(requests_, {})) daemons_.front().Signal(signal);
  }

  // Whether it lives, and was not started just now.
  bool SchedulerIsReady() {
    return !daemons_.front().Poll() && SteadyNow() >= restarts_.front().due + kStartingTime;
  }

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

  // One that lives has been told so, and ends by itself. One that hangs does not, nor does the
  // remote shell of a host that is beyond reach.
  void EndGivenUp(Time now) {
    if (!options_.given_up || give_up_ != kNever) return;
    if (now >= ask_given_up_at_) {
      ask_given_up_at_ = now + kGivenUpInterval;
      for (auto& [index, cause] : options_.given_up()) {
        restarts_[index].given_up = {now + kEndingTime, std::move(cause)};
      }
    }
    for (size_t i = 0; i < daemons_.size(); ++i) {
      std::optional<GivenUp>& given_up = restarts_[i].given_up;
      if (!given_up || (!daemons_[i].Poll() && now < given_up->kill_at)) continue;
      if (!daemons_[i].Poll()) {
        Say(daemons_[i].name() + " has been given up by the scheduler (" + given_up->cause +
            ") and does not end; it is killed");
        daemons_[i].Signal(SIGKILL);
      }
      given_up.reset();
    }
  }

  void StartAgain(Time now) {
    for (size_t i = 0; i < daemons_.size(); ++i) {
      if (!IsToStartAgain(i)) continue;
      Restarts& past = restarts_[i];
      if (!past.died) {
        past.died = true;
        past.due = past.backoff.AfterDeath(now);
        Say(RestartNews(daemons_[i].name(), *daemons_[i].Poll(), past.due - now));
      }
      if (now >= past.due) StartAnother(i, now);
    }
  }

  void StartAnother(size_t index, Time now) {
    Restarts& past = restarts_[index];
    past.backoff.Restarted(now);
    past.given_up.reset();
    try {
      daemons_[index] = options_.restart(index, past.all + 1);
      ++past.all;
      past.died = false;
      // The one before may have died before it wrote that down.
      if (index == 0 && stop_signal_ && requests_.empty()) requests_.push_back(*stop_signal_);
    } catch (const Error& error) {
      now = SteadyNow();  // a host that reads nothing is waited for
      past.due = past.backoff.AfterDeath(now);
      Say(NotStartedNews(daemons_[index].name(), error, past.due - now));
    }
  }

  // Those that the job goes on without are told of once.
  void NoticeDispensable() {
    for (size_t i = 0; i < daemons_.size(); ++i) {
      if (restarts_[i].told || give_up_ != kNever) continue;
      const bool unneeded = IsUnneeded(i);
      // A scheduler that is not there can't be told yet.
      if (!unneeded && (!IsDispensable(i) || daemons_.front().Poll())) continue;
      restarts_[i].told = true;
      Say(daemons_[i].name() + " " + CauseOf(daemons_[i]) +
          (unneeded ? "; no other is started in its place"
                    : "; the job goes on without it, if others have the parameters"));
      if (!unneeded && options_.tell_lost) options_.tell_lost(i, CauseOf(daemons_[i]));
    }
  }

  // Whether another process in the place of a dead one was refused: it has come too late, as the
  // job has gone on with fewer or with a spare, or it is of another build.
  bool IsUnneeded(size_t index) {
    const std::optional<ExitStatus>& status = daemons_[index].Poll();
    return restarts_[index].all > 0 && status && status->signal == 0 &&
           status->code == static_cast<int>(ExitCode::kRefused);
  }

  // Whether another process may fare better. One that was to take a place and never came to run, as
  // its host is not there, may do so later.
  bool MayStartAnother(size_t index) {
    const bool never_ran =
        restarts_[index].all > 0 && options_.has_started && !options_.has_started(index);
    return never_ran || MayStartAgain(*daemons_[index].Poll());
  }

  // Whether a daemon has died that the job goes on without.
  bool IsDispensable(size_t index) {
    if (!options_.goes_on_without || !options_.goes_on_without(index)) return false;
    const std::optional<ExitStatus>& status = daemons_[index].Poll();
    return status && (MayStartAgain(*status) || WasEndedAlone(index, *status));
  }

  // Where the job is ended from here, all its daemons end so.
  bool WasEndedAlone(size_t index, const ExitStatus& status) const {
    if (stopped_ || interrupted_ || late_) return false;
    return options_.may_leave && options_.may_leave(index) &&
           status.code == static_cast<int>(ExitCode::kInterrupted);
  }

  // Whether a daemon has died and another is to take its place: the scheduler, or another one while
  // there is a scheduler.
  bool IsToStartAgain(size_t index) {
    if (!options_.restart || give_up_ != kNever || IsDispensable(index)) return false;
    const std::optional<ExitStatus>& status = daemons_[index].Poll();
    return status && MayStartAnother(index) && (index == 0 || !daemons_.front().Poll());
  }

  void NoticeFailure(Time now) {
    const std::optional<size_t> failed = FirstFailure();
    if (!failed || give_up_ != kNever) return;
    give_up_ = now + options_.heartbeat_deadline + kEndingTime;
    failed_ = failed;
    ChildProcess& daemon = daemons_[*failed];
    const ExitStatus& status = *daemon.Poll();
    // What was killed has told nobody.
    tell_at_ = status.signal == 0 ? now + kNewsTime : now;
    // Who has lost a peer, as the scheduler always has, is not the one that people look for.
    if (status.code == static_cast<int>(ExitCode::kPeerLost)) {
      return Say("the job has failed; waiting for its processes to end");
    }
    Say(daemon.name() + " " + CauseOf(daemon) + "; waiting for the others to end");
  }

  // How a daemon that has ended did so, and its last words if a signal ended it, or the scheduler
  // has told it why it may not join.
  static std::string CauseOf(ChildProcess& daemon) {
    const ExitStatus& status = *daemon.Poll();
    std::string words;
    if (status.signal != 0) {
      words = LastWords(daemon.log());
    } else if (status.code == static_cast<int>(ExitCode::kRefused)) {
      words = LastLines(daemon.log(), 1);
      words.erase(words.find_last_not_of('\n') + 1);
    }
    return status.ToString() + (words.empty() ? "" : ": " + Printable(words));
  }

  // Where the job is ended from here, a node that has not joined would wait for its deadline. A
  // scheduler that was killed has told nobody.
  void EndWhoHasNotJoined(Time now) {
    const std::optional<ExitStatus>& scheduler = daemons_.front().Poll();
    if (!(interrupted_ || late_ || failed_) || !scheduler) return;
    if (tell_all_at_ == kNever) tell_all_at_ = now + (failed_ ? kNewsTime : kToldTime);
    if (scheduler->signal != 0) tell_all_at_ = now;
    if (now < tell_all_at_ || told_all_) return;
    told_all_ = true;
    for (ChildProcess& daemon : daemons_) daemon.RequestEnd();
  }

  // The job is over, and not by a failure.
  bool EndedWell() {
    const std::optional<ExitStatus>& scheduler = daemons_.front().Poll();
    return scheduler && (scheduler->ok() || IsStop(*scheduler));
  }

  // A process in a dead one's place, or one that was coming up when the job was stopped, may not
  // have joined when the scheduler ended, and would wait for its deadline. Those that were told
  // need less than this time.
  void EndWhoCameTooLate(Time now) {
    if (ended_late_ || !EndedWell()) return;
    if (end_late_at_ == kNever) end_late_at_ = now + kEndingTime;
    if (now < end_late_at_) return;
    ended_late_ = true;
    for (size_t i = 0; i < daemons_.size(); ++i) {
      if (restarts_[i].all > 0 || stopped_) daemons_[i].RequestEnd();
    }
  }

  // Whether how a daemon has ended says nothing of a job that goes on when nodes are lost: the job
  // had ended well without it.
  bool IsAfterwards(size_t index) {
    if (index == 0 || !options_.restart || !EndedWell()) return false;
    return restarts_[index].all > 0 || daemons_[index].Poll()->signal != 0;
  }

  void TellOfFailure() {
    if (options_.tell_lost && *failed_ != 0) {
      options_.tell_lost(*failed_, CauseOf(daemons_[*failed_]));
    } else if (daemons_[*failed_].Poll()->signal == 0) {
      daemons_.front().RequestEnd();
    }
  }

  void EndWhoIsLate(Time now) {
    if (now >= tell_at_) {
      tell_at_ = kNever;
      TellOfFailure();
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

  // A daemon that ended badly, if any has: rather one that did so by itself than one that has lost
  // another.
  std::optional<size_t> FirstFailure() {
    std::optional<size_t> found;
    for (size_t i = 0; i < daemons_.size(); ++i) {
      const std::optional<ExitStatus>& status = daemons_[i].Poll();
      // Another takes its place, or will when there is a scheduler.
      const bool awaited = restarts_[i].died || IsToStartAgain(i) ||
                           (IsToStartAgain(0) && status && MayStartAnother(i));
      if (awaited || IsDispensable(i) || IsUnneeded(i) || !status || status->ok() ||
          IsStop(*status) || IsAfterwards(i)) {
        continue;
      }
      if (status->code != static_cast<int>(ExitCode::kPeerLost)) return i;
      if (!found) found = i;
    }
    return found;
  }

  // Whether a daemon that ended so did what it was asked for. One that does not know yet what its
  // signals mean dies by them.
  bool IsStop(const ExitStatus& status) const {
    return stopped_ && (status.code == static_cast<int>(ExitCode::kInterrupted) ||
                        (stop_signal_ && status.signal == *stop_signal_));
  }

  void SignalAll(int signal) {
    for (ChildProcess& daemon : daemons_) daemon.Signal(signal);
  }

  WatchResult Result() {
    if (interrupted_) return {ExitCode::kInterrupted, {}};
    if (late_) return {ExitCode::kDeadlineExceeded, {}};
    if (!FirstFailure()) {
      return {IsStop(*daemons_.front().Poll()) ? ExitCode::kInterrupted : ExitCode::kSuccess, {}};
    }
    // Those who only lost a peer repeat what the scheduler says; the others have their own story.
    WatchResult result = {ExitCode::kPeerLost, {}};
    // The same code comes from the same cause: one of each is enough.
    std::set<int> explained = {static_cast<int>(ExitCode::kInterrupted)};
    for (size_t i = 0; i < daemons_.size(); ++i) {
      const ExitStatus& status = *daemons_[i].Poll();
      if (status.ok() || status.code == static_cast<int>(ExitCode::kPeerLost)) continue;
      if (IsDispensable(i) || IsUnneeded(i) || IsAfterwards(i)) continue;
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

  struct GivenUp {
    Time kill_at{};
    std::string cause;
  };
  struct Restarts {
    int all = 0;
    bool told = false;  // that the job goes on without it
    bool died = false;  // and `due` is when another is started
    Time due{};         // of the scheduler, if it has not died: when it was started
    RestartBackoff backoff;
    std::optional<GivenUp> given_up;  // by the scheduler, and lives yet
  };

  std::vector<ChildProcess>& daemons_;
  const WatchOptions& options_;
  std::vector<Restarts> restarts_;  // by daemon
  Time too_late_;
  Time give_up_ = kNever;         // when to stop waiting for the others' own end
  std::optional<size_t> failed_;  // the first that has
  Time tell_at_ = kNever;         // when to tell the scheduler of it
  Time kill_at_ = kNever;
  Time ask_given_up_at_{};
  Time tell_all_at_ = kNever;
  bool told_all_ = false;
  Time end_late_at_ = kNever;
  bool ended_late_ = false;
  std::vector<int> requests_;  // signals that the scheduler has not got yet
  std::optional<int> stop_signal_;
  bool stopped_ = false;  // somebody has asked for the training's end
  bool interrupted_ = false;
  bool late_ = false;
};

}  // namespace

WatchResult WatchDaemons(std::vector<ChildProcess>& daemons, const WatchOptions& options) {
  return Watch(daemons, options).Run();
}

}  // namespace poseidon
