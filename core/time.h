// Time as actors see it: nanoseconds since an epoch that only the runtime knows (the steady clock's
// on ZmqRuntime, 0 at the start of a simulation on SimRuntime).
#pragma once

#include <chrono>

namespace poseidon {

using Duration = std::chrono::nanoseconds;
using Time = std::chrono::nanoseconds;

constexpr Duration Seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}
constexpr double ToSeconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

constexpr double kMillisecondsPerSecond = 1000;

}  // namespace poseidon
