// The timers of one lane's actor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "core/time.h"
#include "transport/actor.h"

namespace poseidon {

// Timers that are due at the same time fire in the order in which they were set. Not thread-safe.
class ZmqTimers {
 public:
  // Setting a timer that is set already moves it.
  void Set(TimerId id, Time due);
  void Cancel(TimerId id);
  void Clear();
  std::optional<Time> next() const;
  // Takes the earliest timer that is due at `now`.
  std::optional<TimerId> TakeDue(Time now);

 private:
  using Key = std::pair<Time, uint64_t>;  // due, how many were set before

  uint64_t count_ = 0;
  std::map<Key, TimerId> by_time_;
  std::unordered_map<TimerId, Key> by_id_;
};

}  // namespace poseidon
