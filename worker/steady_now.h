// The time of traces and of what the training loop measures.
#pragma once

#include <chrono>

#include "core/time.h"

namespace poseidon {

inline Time SteadyNow() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace poseidon
