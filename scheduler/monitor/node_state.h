// Who of a job's nodes does what, judged by what the scheduler has heard.
#pragma once

#include <string>
#include <vector>

#include "scheduler/monitor/job_status.h"

namespace poseidon {

// What one node is doing, in a word, and for whom it waits.
//
//   joining    has not joined yet           waiting   has done all it can without slower workers
//   ready      has joined                   late      others wait for it in training
//   awaited    the job's phase waits for it finished  has done its training
//   training, serving                       lost      its process is gone, or silent
//   ended      the job has ended before it had finished
struct NodeState {
  NodeId node;
  std::string state;
  int64_t lag = 0;  // a worker's: iterations behind the furthest
  // A worker's: since it told of an iteration, or while it has told of none since training began;
  // NaN: it could not have told.
  double silent_seconds = 0;
  std::string waits_for;  // "worker 2, iteration 17"; empty: for nobody
};

// Servers, then workers, by rank. A worker is late if it is behind and has told nothing for longer
// than iterations take; any node is whose heartbeat is overdue.
std::vector<NodeState> NodeStates(const JobStatus& status);

}  // namespace poseidon
