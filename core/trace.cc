#include "core/trace.h"

#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"

namespace poseidon {

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
  const int process_id = getpid();
  nlohmann::json events = nlohmann::json::array();
  events.push_back(
      {{"ph", "M"}, {"name", "process_name"}, {"pid", process_id}, {"args", {{"name", process_}}}});
  std::map<std::string, int> tracks;
  for (const Event& event : events_) {
    const auto [track, is_new] = tracks.try_emplace(event.track, tracks.size() + 1);
    if (is_new) {
      events.push_back({{"ph", "M"},
                        {"name", "thread_name"},
                        {"pid", process_id},
                        {"tid", track->second},
                        {"args", {{"name", event.track}}}});
    }
    nlohmann::json entry = {{"name", event.name + " " + event.layer},
                            {"cat", event.name},
                            {"pid", process_id},
                            {"tid", track->second},
                            {"ts", std::chrono::duration<double, std::micro>(event.begin).count()},
                            {"args", {{"layer", event.layer}, {"iteration", event.iteration}}}};
    if (event.end > event.begin) {
      entry["ph"] = "X";
      entry["dur"] = std::chrono::duration<double, std::micro>(event.end - event.begin).count();
    } else {
      entry["ph"] = "i";
      entry["s"] = "t";
    }
    events.push_back(std::move(entry));
  }
  WriteFileAtomically(path, nlohmann::json({{"traceEvents", events}}).dump() + "\n");
}

}  // namespace poseidon
