// A job as a batch script of Slurm's: the scheduler on the first node, and as many tasks as there
// are servers and workers, which take their ranks from SLURM_PROCID. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "proto/job.pb.h"

namespace poseidon {

struct SlurmJob {
  Job job;                          // checked; of our own workers. Its paths are those of the nodes
  bool scheduler_port_set = false;  // by the user: else one is made of the job's number
  // Of the snapshots to go on from when the job is queued again; empty: it writes none.
  std::string snapshot_prefix;
  int64_t iterations = 0;        // of the whole training, where it writes snapshots
  bool snapshot_at_end = false;  // it writes one of its last iteration, too
  // Before the time limit; training stops then with a snapshot, and the job is queued again. 0: it
  // is ended at the limit. Of jobs that CanStop() only.
  int notice_seconds = 0;
  int nodes = 1;         // machines
  int restarts = 0;      // how often it is queued again after what may pass
  std::string programs;  // directory of this project's programs, on the nodes
  // Absolute, and there on the first node. Without a backslash, which sbatch
  // takes out.
  std::string out;
};

// Whether training can be stopped after an iteration, with a snapshot of it.
bool CanStop(const SlurmJob& slurm);

// For sbatch. Slurm queues the job again when a node fails, and so does the script when the job
// fails for a reason that may pass, unless its workers have all ended well, and when its time is
// over; then it goes on from its newest
// snapshot, or ends well where that is of the
// last iteration. SIGTERM to the script stops a job that can be stopped, and ends others. In a job
// with `recovery` a task starts its daemon again when that is killed. The script ends with the
// scheduler's code, or, where that is 3, with that of the node that failed.
std::string SlurmScript(const SlurmJob& slurm);

}  // namespace poseidon
