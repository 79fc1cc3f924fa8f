// AwakeClock: time in which something could happen. It stands while its process does: a job that is
// suspended as a whole (`scontrol suspend`, `docker pause`, SIGSTOP) and goes on later has not
// waited in between, and no deadline has passed.
//
//   AwakeClock clock;
//   const Time since = clock.Look(now, interval);
//   if (clock.Look(now, interval) - since > deadline) ...   // after many other looks
//
// A value; not thread-safe.
#pragma once

#include <algorithm>
#include <optional>

#include "core/time.h"

namespace poseidon {

class AwakeClock {
 public:
  // Something has taken so long that takes `most` where the process runs. What is beyond that does
  // not count, also where a busy machine alone is at fault: then others are not faster.
  void Took(Duration duration, Duration most) {
    asleep_ += std::max(Duration::zero(), duration - most);
  }
  Time At(Time now) const { return now - asleep_; }
  // The time, for who looks at least once in an `interval` where the process runs, and at whatever
  // comes in between: what is handled first after a stop waits since then, not since before it.
  Time Look(Time now, Duration interval) {
    if (looked_) Took(now - *looked_, interval);
    looked_ = now;
    return At(now);
  }

 private:
  Duration asleep_{};
  std::optional<Time> looked_;
};

}  // namespace poseidon
