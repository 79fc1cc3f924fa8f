// QuietWatch: notices that nobody gets on, where nobody can be blamed for it. Where some workers
// wait for others, these report it; a job whose workers all read from a file server that is gone,
// or whose only worker hangs, reports nothing.
//
//   QuietWatch watch(Seconds(600));
//   watch.Heard(now);                        // with each sign of life
//   if (const auto quiet = watch.Look(now))  // at least once in an interval()
//     Tell(*quiet);                          // after 600 s, then 1,200, 2,400, ...
//
// A value; not thread-safe.
#pragma once

#include <optional>

#include "core/awake_clock.h"
#include "core/time.h"

namespace poseidon {

class QuietWatch {
 public:
  explicit QuietWatch(Duration patience) : patience_(patience), due_(patience) {}

  // Somebody gets on, or somebody else waits with a deadline.
  void Heard(Time now);
  // For how long nobody has, if that is long enough to tell, and has not been told since it was
  // half as long. Time in which all was suspended does not count.
  std::optional<Duration> Look(Time now);
  Duration interval() const { return patience_ / 10; }

 private:
  Duration patience_;
  Duration due_;  // of quiet, when it is told next
  AwakeClock clock_;
  Time since_{};
};

}  // namespace poseidon
