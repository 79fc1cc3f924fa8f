// Whether another process takes the place of a daemon that has died, and when it is started.
#pragma once

#include <chrono>
#include <string>

#include "core/child_process.h"
#include "core/error.h"
#include "core/time.h"

namespace poseidon {

// Whether another process may fare better: this one was killed, or the job has gone on without it.
// All else it would do again, or the job has ended.
bool MayStartAgain(const ExitStatus& status);

// " in 0.50 s", for a message; "" for at once.
std::string In(Duration wait);

// "worker-1 was killed by signal 9 (SIGKILL); it is started again in 0.50 s".
std::string RestartNews(const std::string& name, const ExitStatus& status, Duration wait);

// "worker-1 can't be started again (can't start worker-1: no memory); it is tried again in 0.50 s".
std::string NotStartedNews(const std::string& name, const Error& error, Duration wait);

// A daemon that dies again and again is started ever less soon: at once, then half a second (or
// `first`) after its death, then after twice as long, up to half a minute. One that has run for a
// minute did not die of what it was started with, and counts as the first.
//
// A value; not thread-safe.
class RestartBackoff {
 public:
  explicit RestartBackoff(Time started = {}, Duration first = std::chrono::milliseconds(500))
      : started_(started), first_(first) {}
  // It has died: when another is to be started.
  Time AfterDeath(Time now);
  void Restarted(Time now);

 private:
  Time started_;
  Duration first_;
  int in_a_row_ = 0;  // restarts
};

}  // namespace poseidon
