// Trace: what happened when, for timelines that people look at and tests check.
//
// Written as Chrome's trace format, which chrome://tracing and Perfetto show. Times are the steady
// clock's, so that traces of several processes on one machine fit together.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "core/time.h"

namespace poseidon {

// Thread-safe. Keeps the newest `capacity` events.
class Trace {
 public:
  struct Event {
    std::string name;  // "forward", "backward", "gradient arrived", ...
    std::string layer;
    std::string track;  // the row it is drawn in: "compute", "lane 0"
    int64_t iteration = 0;
    Time begin{};
    Time end{};  // equal to begin for a moment
    bool operator==(const Event&) const = default;
  };

  // `process` is what the timeline calls the process: "worker 0".
  Trace(std::string process, size_t capacity) : process_(std::move(process)), capacity_(capacity) {}

  void set_process(std::string process);
  void Add(Event event);
  // Those that are kept, oldest first.
  std::deque<Event> events() const;
  // Replaces `path` whole. Throws Error if it can't be written.
  void Write(const std::string& path) const;

 private:
  mutable std::mutex mutex_;
  std::string process_;
  size_t capacity_;
  std::deque<Event> events_;
};

}  // namespace poseidon
