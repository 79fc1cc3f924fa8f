// PlanHandover: how what a plan has made of a worker's memory comes from the control lane to the
// training thread. The control lane puts it in before it forwards the plan; whoever hears of the
// plan takes it out. Neither looks at the other's pointer, so nothing depends on when.
//
// Thread-safe.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "client/sync/syncer.h"

namespace poseidon {

class PlanHandover {
 public:
  void Put(std::shared_ptr<SyncContext> context) {
    const std::lock_guard lock(mutex_);
    contexts_.push_back(std::move(context));
  }
  // The first that has not been taken; null if there is none.
  std::shared_ptr<SyncContext> Take() {
    const std::lock_guard lock(mutex_);
    if (contexts_.empty()) return nullptr;
    std::shared_ptr<SyncContext> first = std::move(contexts_.front());
    contexts_.pop_front();
    return first;
  }

 private:
  std::mutex mutex_;  // of what follows
  std::deque<std::shared_ptr<SyncContext>> contexts_;
};

}  // namespace poseidon
