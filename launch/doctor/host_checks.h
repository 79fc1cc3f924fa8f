// What the facts of a job's hosts mean for the job: pure functions of what was asked and answered,
// one for each check of `poseidon doctor`. Each returns at least one finding; what could not be
// found out is a warning.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/doctor/finding.h"
#include "launch/doctor/host_facts.h"

namespace poseidon {

// A host, what it has to do, and what it has said. There is at least one wherever many are taken.
struct CheckedHost {
  std::string name;
  std::string address;
  int workers = 0;
  int servers = 0;
  HostFacts facts;
  // Seconds since 1970, of this machine's clock: the host's was read between them.
  double asked = 0;
  double answered = 0;
};

using CheckedHosts = std::vector<CheckedHost>;

// What a job wants of a machine.
struct JobNeeds {
  int64_t bytes_per_worker = 0;  // of memory, at least
  int64_t bytes_per_server = 0;
  int64_t snapshot_bytes = 0;
  std::string snapshot_directory;  // on the host of worker 0; empty: there are no snapshots
  int nodes = 0;                   // workers and servers
  int lanes = 1;
  bool gpus = false;
  int gpus_per_worker = 1;
};

// The programs are there, of one version and with the same fingerprints as here.
Findings CheckVersions(const HostFacts& here, const CheckedHosts& hosts);
// Solver and nets are there, and are those of this machine.
Findings CheckFiles(const HostFacts& here, const CheckedHosts& hosts);
// All hosts find each other, at the same addresses, and none at a loopback one of its own.
Findings CheckNames(const CheckedHosts& hosts);
// Clocks differ from this machine's by less than a second: by as much as can be told from when the
// answer came.
Findings CheckClocks(const CheckedHosts& hosts);
Findings CheckLimits(const CheckedHosts& hosts, const JobNeeds& needs);
Findings CheckMemory(const CheckedHosts& hosts, const JobNeeds& needs);
// Room for the job's files and for snapshots, `first` being the host of worker 0.
Findings CheckDisks(const CheckedHosts& hosts, const CheckedHost& first, const JobNeeds& needs,
                    const std::string& temporary_directory);
// What training reads is there on each host with workers.
Findings CheckData(const CheckedHosts& hosts);
Findings CheckGpus(const CheckedHosts& hosts, const JobNeeds& needs);
// Congestion control and queueing discipline of the interfaces that lead to the others.
Findings CheckQueues(const CheckedHosts& hosts);
// They agree, and whole packets pass.
Findings CheckMtu(const CheckedHosts& hosts);

}  // namespace poseidon
