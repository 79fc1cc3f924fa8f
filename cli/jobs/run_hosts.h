// The hosts that `poseidon run` is given, looked at before anything is started there.
#pragma once

#include <string>
#include <vector>

#include "core/program.h"
#include "launch/job_cluster.h"
#include "proto/job_config.h"

namespace poseidon {

// Whether --hosts is given. Throws ConfigError where it is empty, as by a variable that is not set,
// and for --remote_shell and --remote_programs without it.
bool HostsGiven();

// From --remote_shell and --remote_programs, where programs are on the hosts.
RemoteShell ShellFromFlags();

// Which of the hosts of --hosts each rank is on. Throws ConfigError for a file that can't be, or
// that has too few slots.
HostRanks RanksFromFlags(const Cluster& cluster);

// At which address the hosts reach a scheduler of this machine: the config's, or that of the
// interface that leads to the first of them that is elsewhere. This machine's own name says
// nothing where /etc/hosts has it at a loopback address, as Debian's installer writes it. Throws
// ConfigError if there is none.
std::string SchedulerHost(const JobConfig& config, const std::vector<Host>& hosts);

// Sets the numbers of nodes that --workers and --servers say. Throws ConfigError for one that
// can't be.
void SetNodesFromFlags(Cluster& cluster);

// The job of --config with these numbers, and without a monitor under --nomonitor. Throws
// ConfigError as ReadJobConfig does.
JobConfig JobConfigFromFlags();

// What the user is to do about a host that can't be reached, as `failure` tells.
std::string HowToReach(const std::string& host, const std::string& failure);

// Reads --hosts, --remote_shell, --remote_programs and gives each rank of the job a host. Sets what
// depends on the hosts: the scheduler's address, which is this machine's, and the threads of a
// worker. `worker`: this project's program that workers are ("poseidon_worker"); empty: they are
// the user's, and the hosts are to have the library that makes them workers. Throws ConfigError for
// files and flags that can't be, and Error that names each host which does not answer or lacks any.
JobHosts HostsFromFlags(JobConfig& config, const std::string& worker, Interruption& interruption);

// Before a job that has failed is run again: waits until all of its hosts answer, for one may have
// been started again or the network have failed. At most ten minutes; says on standard output who
// does not answer. False if that was in vain. Throws Interrupted().
bool AwaitHosts(const JobHosts& hosts, Interruption& interruption);

}  // namespace poseidon
