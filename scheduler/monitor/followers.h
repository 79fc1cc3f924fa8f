// Followers: who asks for a job's status again and again under a name, and has not been told of
// the job's end yet. Whoever asks without a name asks once, and nobody waits for that one.
//
//   Followers followers;
//   followers.Asked("k3x9", SteadyNow());
//   if (followers.AnyAskedSince(SteadyNow() - Seconds(5))) { ... }
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "core/time.h"

namespace poseidon {

// Thread-safe.
class Followers {
 public:
  // Those who have asked last; names come from the network and must not fill the memory.
  static constexpr size_t kMost = 64;

  void Asked(const std::string& name, Time now) {
    if (name.empty()) return;
    const std::lock_guard lock(mutex_);
    asked_[name] = now;
    if (asked_.size() <= kMost) return;
    asked_.erase(std::ranges::min_element(asked_, {}, [](const auto& one) { return one.second; }));
  }

  // It need not ask again.
  void Forget(const std::string& name) {
    const std::lock_guard lock(mutex_);
    asked_.erase(name);
  }

  bool AnyAskedSince(Time time) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(asked_, [&](const auto& one) { return one.second >= time; });
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Time> asked_;  // when last, by name
};

}  // namespace poseidon
