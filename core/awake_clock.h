// AwakeClock: time in which something could happen. It stands while its process does: a job that is
// suspended as a whole (`scontrol suspend`, `docker pause`, SIGSTOP) and goes on later has not
// waited in between, and no deadline has passed.
//
//   AwakeClock clock;
//   const Time since = clock.At(now);
//   clock.Took(now - last_look, interval);   // what had to end after `interval` at the latest
//   if (clock.At(now) - since > deadline) ...
//
// A value; not thread-safe.
#pragma once

#include <algorithm>

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

 private:
  Duration asleep_{};
};

}  // namespace poseidon
