// All daemons of a job as processes, wherever they run: started, watched to their end, and asked
// what came of it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/program.h"
#include "core/time.h"
#include "proto/job.pb.h"

namespace poseidon {

struct DaemonCommand {
  std::string name;     // "worker-3": of messages and logs
  std::string program;  // "poseidon_worker"
  // But --config and --out, which depend on where it runs.
  std::vector<std::string> flags;
};

// Starts a daemon on a machine: from 0, those of workers and servers as
// simulation/cluster_layout.h has them, then one for the scheduler.
using StartDaemon = std::function<ChildProcess(int machine, const DaemonCommand& command)>;

// Machines without the scheduler's.
int MachinesOf(const Job& job);

struct ProcessClusterOptions {
  Job job;  // as the daemons have it
  // By worker: its computing takes so many times as long. Others' takes as long as the job says.
  std::map<int, double> compute_factors;
  StartDaemon start;
  // By machine, the scheduler's last: to which `start` opens a remote shell. Empty: to none.
  std::vector<std::string> hosts;
  Duration deadline = Seconds(600);
  Interruption* interruption = nullptr;  // may be null
};

// Returns when all have ended well. Throws Interrupted(), DeadlineExceeded, and Error with the last
// lines of the culprits' logs; then all have ended, too.
void RunProcesses(const ProcessClusterOptions& options);

}  // namespace poseidon
