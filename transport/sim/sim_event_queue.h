// SimEventQueue: virtual time and what will happen in it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/time.h"
#include "transport/sim/sim_heap.h"

namespace poseidon {

// What the subject of an event is a number of stands beside its kind.
enum class SimEventKind : uint32_t {
  kAction,          // SimRuntime's actions: call it
  kStart,           // SimLane: its actor's OnStart
  kTimer,           // SimTimers: may be due
  kEgressLeft,      // machine: an envelope has left it whole
  kReachesUplink,   // transfer: is ready to enter an uplink between groups
  kReachesIngress,  // transfer: is ready to enter its receiver's ingress
  kLeavesIngress,   // machine: an envelope is all there
  kArrives,         // transfer: arrives without passing a NIC
  kHandled,         // SimRuntime's held transfers: its lane is done with it
  kWorked,          // SimLane: the time of some slices of its work has passed
};

struct SimEvent {
  Time time{};
  uint64_t order = 0;  // unique; earlier pushed is smaller
  SimEventKind kind = SimEventKind::kAction;
  uint32_t subject = 0;

  bool operator>(const SimEvent& other) const {
    return IsGreater(time, order, other.time, other.order);
  }
};

// Events come out by time, and in the order in which they were pushed where times are equal.
class SimEventQueue {
 public:
  Time now() const { return now_; }
  bool empty() const { return heap_.empty(); }
  const SimEvent& next() const { return heap_.top(); }

  // A time that is past counts as now. Returns the event's `order`.
  uint64_t Push(Time time, SimEventKind kind, uint32_t subject) {
    heap_.Push({std::max(time, now_), order_, kind, subject});
    return order_++;
  }

  // The next event, whose time it is then.
  SimEvent Pop() {
    const SimEvent event = heap_.Pop();
    now_ = event.time;
    return event;
  }

  // Forgets the next event; time stands still.
  void Drop() { heap_.Pop(); }

  // No event may be due earlier than `time`.
  void AdvanceTo(Time time) { now_ = std::max(now_, time); }

 private:
  SimHeap<SimEvent> heap_;
  uint64_t order_ = 0;
  Time now_{};
};

}  // namespace poseidon
