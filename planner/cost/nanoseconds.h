// Times of predictions are counted in whole nanoseconds, so that sums don't depend on their order.
#pragma once

#include <cmath>
#include <cstdint>

namespace poseidon {

constexpr double kNanosecondsPerSecond = 1e9;

inline int64_t Nanoseconds(double seconds) { return std::llround(seconds * kNanosecondsPerSecond); }
inline double InSeconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace poseidon
