#include "transport/zmq/zmq_timers.h"

namespace poseidon {

void ZmqTimers::Set(TimerId id, Time due) {
  Cancel(id);
  const Key key{due, count_++};
  by_time_[key] = id;
  by_id_[id] = key;
}

void ZmqTimers::Cancel(TimerId id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  by_time_.erase(found->second);
  by_id_.erase(found);
}

void ZmqTimers::Clear() {
  by_time_.clear();
  by_id_.clear();
}

std::optional<Time> ZmqTimers::next() const {
  if (by_time_.empty()) return std::nullopt;
  return by_time_.begin()->first.first;
}

std::optional<TimerId> ZmqTimers::TakeDue(Time now) {
  if (by_time_.empty() || by_time_.begin()->first.first > now) return std::nullopt;
  const TimerId id = by_time_.begin()->second;
  Cancel(id);
  return id;
}

}  // namespace poseidon
