// Timeline: the traces and events of all nodes of a job as one file in Chrome's trace format, on
// one clock, for Perfetto (https://ui.perfetto.dev).
//
//   const Timeline timeline = MakeTimeline(ReadJobFiles("out/lenet"));
//   WriteFileAtomically("out/lenet/timeline.json", timeline.json);
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "diagnosis/job_files.h"

namespace poseidon {

struct Timeline {
  // Each node is a process, with the rows of its trace, if there is one, its program's activities,
  // and for each lane what it has sent and what has arrived. Arrows (flow events) lead from each
  // send to its arrival. Counters say how many bytes are on their way to each node. Times are in
  // microseconds since the first event, whose wall clock's time is otherData.begin_ns.
  std::string json;
  size_t nodes = 0;
  size_t arrows = 0;
  // Of each node in `job.events`: how its machine's clock differs, "worker 1: 12.300 ms ahead of
  // the scheduler's machine, off by at most 0.041 ms". Machines with the first node's clock are
  // left out.
  std::vector<std::string> clocks;
};

// Reads the traces, too. Throws ConfigError if the job has neither traces nor events, and
// kDataError for a trace that can't be read.
Timeline MakeTimeline(const JobFiles& job);

}  // namespace poseidon
