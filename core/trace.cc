#include "core/trace.h"

#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/process/machine_clock.h"

namespace poseidon {
namespace {

// Process ids of several machines, or containers, may be the same; names are not.
int IdOf(const std::string& process) {
  constexpr XXH32_hash_t kPositive = 0x7fffffff;
  return static_cast<int>(XXH32(process.data(), process.size(), 0) & kPositive);
}

// Rounded once, to the quarter that a double has room for in the wall clock's microseconds. Of its
// nanoseconds a double keeps less.
double Microseconds(Duration duration) {
  const auto whole = std::chrono::floor<std::chrono::microseconds>(duration);
  return static_cast<double>(whole.count()) +
         std::chrono::duration<double, std::micro>(duration - whole).count();
}

nlohmann::json Arguments(const Trace::Event& event) {
  nlohmann::json arguments = {{"layer", event.layer}, {"iteration", event.iteration}};
  if (event.bytes > 0) arguments["bytes"] = event.bytes;
  return arguments;
}

// An event and the number of the row that it is drawn in; rows count from 1, in the order in which
// they are first used.
struct Placed {
  const Trace::Event* event;
  int row;
};

// One row of a track: the ends of the spans that are open in it, the outermost first.
struct Row {
  int number;
  std::vector<Time> open;

  // Whether the event is after, or within, all that the row has; then it is taken in.
  bool Takes(const Trace::Event& event) {
    while (!open.empty() && open.back() <= event.begin) open.pop_back();
    if (event.end == event.begin) return true;
    if (!open.empty() && event.end > open.back()) return false;
    open.push_back(event.end);
    return true;
  }
};

// Viewers draw spans of a row as a stack, and show what is not one wrongly or not at all.
std::vector<Placed> Place(const std::deque<Trace::Event>& events) {
  std::vector<Placed> placed;
  for (const Trace::Event& event : events) placed.push_back({&event, 0});
  // Of spans that begin together the longer one is around the other.
  std::stable_sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.event->begin, b.event->end) < std::pair(b.event->begin, a.event->end);
  });
  std::map<std::string, std::vector<Row>> tracks;
  int rows = 0;
  for (Placed& place : placed) {
    std::vector<Row>& track = tracks[place.event->track];
    auto row = std::ranges::find_if(track, [&](Row& each) { return each.Takes(*place.event); });
    if (row == track.end()) {
      track.push_back({++rows, {}});
      row = std::prev(track.end());
      row->Takes(*place.event);
    }
    place.row = row->number;
  }
  return placed;
}

}  // namespace

Trace::Trace(std::string process, size_t capacity)
    : process_(std::move(process)), capacity_(capacity), wall_clock_(WallClockOffset()) {}

void Trace::set_process(std::string process) {
  std::lock_guard lock(mutex_);
  process_ = std::move(process);
}

void Trace::Add(Event event) {
  std::lock_guard lock(mutex_);
  if (events_.size() == capacity_) events_.pop_front();
  events_.push_back(std::move(event));
}

std::deque<Trace::Event> Trace::events() const {
  std::lock_guard lock(mutex_);
  return events_;
}

void Trace::Write(const std::string& path) const {
  std::lock_guard lock(mutex_);
  const int process_id = IdOf(process_);
  nlohmann::json events = nlohmann::json::array();
  events.push_back(
      {{"ph", "M"}, {"name", "process_name"}, {"pid", process_id}, {"args", {{"name", process_}}}});
  const std::vector<Placed> placed = Place(events_);
  int named = 0;
  for (const Placed& place : placed) {
    const Event& event = *place.event;
    if (place.row > named) {
      named = place.row;
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", process_id},
                        {"tid", place.row},
                        {"args", {{"name", event.track}}}});
    }
    nlohmann::json entry = {{"name", event.name + (event.layer.empty() ? "" : " " + event.layer)},
                            {"cat", event.name},
                            {"pid", process_id},
                            {"tid", place.row},
                            {"ts", Microseconds(event.begin + wall_clock_)},
                            {"args", Arguments(event)}};
    if (event.end > event.begin) {
      entry["ph"] = "X";
      entry["dur"] = Microseconds(event.end - event.begin);
    } else {
      entry["ph"] = "i";
      entry["s"] = "t";
    }
    events.push_back(std::move(entry));
  }
  const nlohmann::json clock = {
      {"process", process_}, {"clock", MachineClock()}, {"wall_clock_ns", wall_clock_.count()}};
  WriteFileAtomically(
      path, nlohmann::json({{"traceEvents", events}, {"otherData", clock}}).dump() + "\n");
}

}  // namespace poseidon
