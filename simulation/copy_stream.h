// CopyStream: work between a simulated worker's devices and its host in one direction: one thing
// after the other, in the order in which it came.
//
// A value that is part of an actor, to which one of the actor's timers belongs.
#pragma once

#include <algorithm>
#include <deque>

#include "core/time.h"
#include "transport/actor.h"

namespace poseidon {

template <typename Item>
class CopyStream {
 public:
  explicit CopyStream(TimerId timer) : timer_(timer) {}

  // True if there is nothing to wait for: then the item is done, and no timer is set. Else it comes
  // out of Next in its turn.
  bool Pass(const Item& item, Duration duration, Outbox& outbox) {
    if (duration == Duration::zero() && waiting_.empty()) return true;
    free_ = std::max(free_, outbox.now) + duration;
    waiting_.push_back({item, free_});
    if (waiting_.size() == 1) outbox.SetTimer(timer_, free_ - outbox.now);
    return false;
  }

  void Abandon(Outbox& outbox) {
    waiting_.clear();
    free_ = outbox.now;
    outbox.CancelTimer(timer_);
  }

  // The one that is done when the timer expires.
  Item Next(Outbox& outbox) {
    const Item item = waiting_.front().item;
    waiting_.pop_front();
    if (!waiting_.empty()) outbox.SetTimer(timer_, waiting_.front().done - outbox.now);
    return item;
  }

 private:
  struct Waiting {
    Item item;
    Time done;
  };

  TimerId timer_;
  Time free_{};
  std::deque<Waiting> waiting_;
};

}  // namespace poseidon
