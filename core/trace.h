// Trace: what happened when, for timelines that people look at and tests check.
//
// Written as Chrome's trace format, which chrome://tracing and Perfetto show. Events have the
// steady clock's times. What is written has those of the wall clock, which is looked at once, when
// the trace begins, and counted on by the steady clock: traces of several machines fit together as
// well as the machines' clocks do, and a clock that is set meanwhile moves nothing. `otherData` of
// the file says of which machine the steady clock is (core/process/machine_clock.h), and what was
// added to it, for those who know better how the machines' clocks differ.
//
//   Trace trace("worker 0", 10000);
//   trace.Add({"forward", "conv1", "compute", 7, begin, SteadyNow()});
//   trace.Write("out/worker-0.trace.json");
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
    // The row it is drawn in: "compute", "lane 0". Spans of a track that overlap, and of which none
    // is within the other, get several rows of that name.
    std::string track;
    int64_t iteration = 0;
    Time begin{};
    Time end{};         // equal to begin for a moment
    int64_t bytes = 0;  // that were moved; 0: nothing is said of them
    bool operator==(const Event&) const = default;
  };

  // `process` is what the timeline calls the process: "worker 0".
  // What different processes of a job are called differs, and tells them apart.
  Trace(std::string process, size_t capacity);

  void set_process(std::string process);
  void Add(Event event);
  // Those that are kept, in the order in which they were added.
  std::deque<Event> events() const;
  // Replaces `path` whole. Throws Error if it can't be written.
  void Write(const std::string& path) const;

 private:
  mutable std::mutex mutex_;
  std::string process_;
  size_t capacity_;
  Duration wall_clock_;  // minus the steady clock
  std::deque<Event> events_;
};

}  // namespace poseidon
