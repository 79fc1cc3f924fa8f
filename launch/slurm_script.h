// A job as a batch script of Slurm's: the scheduler on the first node, and as many tasks as there
// are servers and workers, which take their ranks from SLURM_PROCID. Pure.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace poseidon {

struct SlurmJob {
  Job job;                          // checked; of our own workers. Its paths are those of the nodes
  bool scheduler_port_set = false;  // by the user: else one is made of the job's number
  bool has_snapshots = false;       // to go on from when the job is queued again
  int nodes = 1;                    // machines
  int restarts = 0;                 // how often it is queued again after what may pass
  std::string programs;             // directory of this project's programs, on the nodes
  std::string out;                  // absolute, and there on the first node
};

// For sbatch. Slurm queues the job again when a node fails, and so does the script when the job
// fails for a reason that may pass; then it goes on from its newest snapshot. In a job with
// `recovery` a task starts its daemon again when that is killed.
std::string SlurmScript(const SlurmJob& slurm);

}  // namespace poseidon
