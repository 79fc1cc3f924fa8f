#include "core/trace.h"

#include <xxhash.h>

#include <map>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

// Process ids of several machines, or containers, may be the same; names are not.
int IdOf(const std::string& process) {
  constexpr XXH32_hash_t kPositive = 0x7fffffff;
  return static_cast<int>(XXH32(process.data(), process.size(), 0) & kPositive);
}

double Microseconds(Duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

nlohmann::json Arguments(const Trace::Event& event) {
  nlohmann::json arguments = {{"layer", event.layer}, {"iteration", event.iteration}};
  if (event.bytes > 0) arguments["bytes"] = event.bytes;
  return arguments;
}

}  // namespace

Trace::Trace(std::string process, size_t capacity)
    : process_(std::move(process)),
      capacity_(capacity),
      wall_clock_(std::chrono::duration_cast<Duration>(
                      std::chrono::system_clock::now().time_since_epoch()) -
                  SteadyNow()) {}

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
    nlohmann::json entry = {{"name", event.name + (event.layer.empty() ? "" : " " + event.layer)},
                            {"cat", event.name},
                            {"pid", process_id},
                            {"tid", track->second},
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
  WriteFileAtomically(path, nlohmann::json({{"traceEvents", events}}).dump() + "\n");
}

}  // namespace poseidon
