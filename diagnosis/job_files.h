// JobFiles: what a job has left in its output directory, for those who look at it afterwards.
//
//   const JobFiles job = ReadJobFiles("out/lenet");
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "diagnosis/clock_estimate.h"
#include "transport/events/event_file.h"

namespace poseidon {

// A value.
struct JobFiles {
  // By node: the scheduler, servers, workers.
  std::vector<EventFile> events;
  // Of each file of `events`: its node's clock beside the first one's. Nodes of one machine have
  // one clock.
  std::vector<ClockEstimate> clocks;
  // The paths of NAME.trace.json.
  std::vector<std::string> traces;
  // Of summary.json.
  struct Summary {
    std::string job;
    int exit_code = 0;
    std::string reason;
  };
  std::optional<Summary> summary;
  // Where its monitor is, as monitor.url says while the job runs; "" if it does not.
  std::string monitor;
  // The last lines of logs/NAME.log, by name: "worker-1".
  std::map<std::string, std::string> logs;
  // Files that are there and can't be read, a sentence each.
  std::vector<std::string> unreadable;

  // A time of a node in the first one's.
  Time Common(size_t node, Time time) const { return clocks[node].ToReference(time); }
};

// Throws ConfigError if `directory` is none, or has nothing of a job.
JobFiles ReadJobFiles(const std::string& directory);

// Of the files' nodes, as in JobFiles.clocks.
std::vector<ClockEstimate> EstimateClocks(const std::vector<EventFile>& files);

}  // namespace poseidon
