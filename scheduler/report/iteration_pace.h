// How fast a job's workers are together, of a recorded iteration, and that in words.
//
// Pure functions; thread-safe.
#pragma once

#include <string>

#include "core/text/format.h"
#include "proto/journal.pb.h"

namespace poseidon {

// In how long the workers together do as many samples as the iteration has.
inline double TogetherMs(const wire::IterationRecord& iteration) {
  return iteration.together_ms() > 0 ? iteration.together_ms() : iteration.duration_ms();
}

// In how long the job gets on by an iteration, which all its workers have to do.
inline double SlowestMs(const wire::IterationRecord& iteration) {
  return iteration.slowest_ms() > 0 ? iteration.slowest_ms() : iteration.duration_ms();
}

// "2432 images/s"; below 100 with three significant digits, as nets differ by that much: "0.125
// images/s".
inline std::string RateText(double images_per_second) {
  const bool small = images_per_second < 100;
  return Format(small ? "%.3g images/s" : "%.0f images/s", images_per_second);
}

}  // namespace poseidon
