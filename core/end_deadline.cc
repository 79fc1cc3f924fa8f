#include "core/end_deadline.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "core/awake_clock.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "core/units.h"

namespace poseidon {

EndDeadline::EndDeadline(std::string program, Duration patience)
    : program_(std::move(program)), patience_(patience) {}

EndDeadline::~EndDeadline() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void EndDeadline::Start(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (why_ || ends_) return;
  why_ = why;
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    why_.reset();
    // Whoever calls has the job's end to pass on.
    LOG(WARNING) << program_ << " can't be ended if it hangs, for there is no thread to do it; "
                 << "kill it then: " << error.what();
  }
}

void EndDeadline::Run() {
  // A process that was stopped meanwhile has the rest of its time when it goes on.
  constexpr Duration kLook = std::chrono::milliseconds(100);
  AwakeClock clock;
  std::unique_lock lock(mutex_);
  const Time since = clock.Look(SteadyNow(), 2 * kLook);
  while (clock.Look(SteadyNow(), 2 * kLook) - since < patience_) {
    if (changed_.wait_for(lock, std::min(kLook, patience_), [this] { return ends_; })) return;
  }
  EndAtOnce(program_, Error(why_->exit_code(),
                            std::string(why_->what()) + "; this process was told so " +
                                FormatDuration(patience_) + " ago and hangs, so it is ended"));
}

}  // namespace poseidon
