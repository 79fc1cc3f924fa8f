// SimTimers: the timers of all lanes of a simulation.
//
// A timer that is moved later or canceled keeps the event that it has in the queue; the queue's
// reader finds out when that event comes up. So a deadline that every message pushes back (a
// heartbeat's, a wait's) costs one event, not one a message.
#pragma once

#include <cstdint>
#include <vector>

#include "core/time.h"
#include "transport/actor.h"
#include "transport/sim/sim_event_queue.h"
#include "transport/sim/sim_lane.h"
#include "transport/sim/sim_pool.h"

namespace poseidon {

class SimTimers {
 public:
  // Number of a lane here.
  using LaneIndex = uint32_t;

  struct Expired {
    SimLane lane;
    TimerId id = 0;
  };

  // `events` must outlive this.
  explicit SimTimers(SimEventQueue* events) : events_(*events) {}

  LaneIndex AddLane(SimLane lane);
  // As Outbox::Timer has it; a negative delay counts as 0.
  void Set(LaneIndex lane, TimerId id, Duration delay);
  void Cancel(LaneIndex lane, TimerId id);
  void CancelAll(LaneIndex lane);

  // Whether a timer expires by the kTimer event that is next in the queue. If not, the event is to
  // be dropped; the timer, if there still is one, has got another.
  bool Due(SimEvent event);
  // The timer of an event for which Due was true; it is no longer set.
  Expired Take(const SimEvent& event);

 private:
  // Beyond all times: a canceled timer's, as long as its event is in the queue.
  static constexpr Time kNever = Time::max();

  struct Timer {
    TimerId id = 0;
    LaneIndex lane = 0;
    Time deadline = kNever;
    // When its event comes, never later than the deadline.
    Time event_time{};
    uint64_t event_order = 0;
  };
  struct Entry {
    TimerId id;
    uint32_t timer;
  };
  struct Lane {
    SimLane lane;
    std::vector<Entry> entries;  // sorted by id: few, or set again and again
  };

  void PushEvent(uint32_t index);
  void Forget(uint32_t index);

  SimEventQueue& events_;
  SimPool<Timer> timers_;
  std::vector<Lane> lanes_;
};

}  // namespace poseidon
