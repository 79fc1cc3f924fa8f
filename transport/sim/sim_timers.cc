#include "transport/sim/sim_timers.h"

#include <algorithm>

namespace poseidon {
namespace {

// For vectors of entries sorted by id.
template <typename Entries>
auto LowerBound(Entries& entries, TimerId id) {
  return std::lower_bound(entries.begin(), entries.end(), id,
                          [](const auto& entry, TimerId wanted) { return entry.id < wanted; });
}

}  // namespace

SimTimers::LaneIndex SimTimers::AddLane(SimLane lane) {
  lanes_.push_back({lane, {}});
  return static_cast<LaneIndex>(lanes_.size() - 1);
}

void SimTimers::Set(LaneIndex lane, TimerId id, Duration delay) {
  const Time now = events_.now();
  delay = std::max(delay, Duration::zero());
  const Time deadline = delay < kNever - now ? now + delay : kNever;
  std::vector<Entry>& entries = lanes_[lane].entries;
  const auto found = LowerBound(entries, id);
  if (found != entries.end() && found->id == id) {
    Timer& timer = timers_[found->timer];
    timer.deadline = deadline;
    if (deadline < timer.event_time) PushEvent(found->timer);
    return;
  }
  if (deadline == kNever) return;
  Timer timer;
  timer.id = id;
  timer.lane = lane;
  timer.deadline = deadline;
  const uint32_t index = timers_.Put(std::move(timer));
  entries.insert(found, {id, index});
  PushEvent(index);
}

void SimTimers::Cancel(LaneIndex lane, TimerId id) {
  std::vector<Entry>& entries = lanes_[lane].entries;
  const auto found = LowerBound(entries, id);
  if (found != entries.end() && found->id == id) timers_[found->timer].deadline = kNever;
}

void SimTimers::CancelAll(LaneIndex lane) {
  for (const Entry& entry : lanes_[lane].entries) timers_[entry.timer].deadline = kNever;
}

bool SimTimers::Due(SimEvent event) {
  Timer& timer = timers_[event.subject];
  // The timer was moved to an earlier time, or is another timer by now.
  if (timer.event_order != event.order) return false;
  if (timer.deadline == event.time) return true;
  if (timer.deadline == kNever) {
    Forget(event.subject);
  } else {
    PushEvent(event.subject);
  }
  return false;
}

SimTimers::Expired SimTimers::Take(const SimEvent& event) {
  const Timer& timer = timers_[event.subject];
  const Expired expired{lanes_[timer.lane].lane, timer.id};
  Forget(event.subject);
  return expired;
}

void SimTimers::PushEvent(uint32_t index) {
  Timer& timer = timers_[index];
  timer.event_time = timer.deadline;
  timer.event_order = events_.Push(timer.deadline, SimEventKind::kTimer, index);
}

void SimTimers::Forget(uint32_t index) {
  const Timer timer = timers_.Take(index);
  std::vector<Entry>& entries = lanes_[timer.lane].entries;
  entries.erase(LowerBound(entries, timer.id));
}

}  // namespace poseidon
