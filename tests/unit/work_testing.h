// Carries out what an actor has left to do, as a runtime does, for tests that call actors
// themselves.
#pragma once

#include <utility>

#include "transport/work_queue.h"

namespace poseidon {

// All of outbox.work, and what that leaves; messages that it sends come behind those that are
// there.
inline void FinishWork(Outbox& outbox) {
  WorkQueue queue;
  while (true) {
    queue.Add(std::exchange(outbox.work, {}));
    if (queue.empty()) return;
    if (const auto done = queue.RunSlice()) done(outbox);
  }
}

}  // namespace poseidon
