// Time outside of actors, for what is measured, and for waits with a deadline: the steady clock's,
// which is also what actors see on ZmqRuntime.
#pragma once

#include <chrono>

#include "core/time.h"

namespace poseidon {

inline Time SteadyNow() {
  return std::chrono::duration_cast<Time>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace poseidon
