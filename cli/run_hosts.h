// The hosts that `poseidon run` is given, looked at before anything is started there.
#pragma once

#include "core/program.h"
#include "launch/job_cluster.h"
#include "proto/job_config.h"

namespace poseidon {

// Whether --hosts is given.
bool HostsGiven();

// Reads --hosts, --remote_shell, --remote_programs and gives each rank of the job a host. Sets what
// depends on the hosts: the scheduler's address, which is this machine's, and the threads of a
// worker. `programs`: of this project's that workers are ("poseidon_worker"); empty: they are the
// user's. Throws ConfigError for files and flags that can't be, and Error that names each host
// which does not answer or lacks a program.
JobHosts HostsFromFlags(JobConfig& config, const std::string& worker, Interruption& interruption);

}  // namespace poseidon
