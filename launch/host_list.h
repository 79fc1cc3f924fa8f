// The machines that a user has, for jobs and experiments that run on them: a text file with a host
// a line.
//
//   # what the remote shell calls it [the address at which the others reach it] [slots=N] [roles=R]
//   node0
//   alice@node1  10.0.0.2  slots=2
//   node2  roles=server
//
// Blank lines and what follows a '#' do not count. A slot has room for a worker and a server; there
// is one if nothing else is said. Roles are worker, server, or both with a comma between them, as
// it is if none are named. A host may be named more than once, and then has the slots of all its
// lines.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace poseidon {

struct Host {
  std::string name;  // for the remote shell: "node0", "alice@node0", "alice@fd00::1"
  // A name or an IP address, without brackets; the name's, without a user, if none is given.
  std::string address;
  int slots = 1;  // workers and, beside them, servers that it takes; at least 1
  bool takes_workers = true;
  bool takes_servers = true;
};

// At least one. Throws ConfigError that names file, line and column.
std::vector<Host> ReadHosts(const std::string& path);

// The same hosts, each with one slot: as many times each as it had slots.
std::vector<Host> BySlot(const std::vector<Host>& hosts);

// Which host each worker and each server is on, by rank.
struct HostRanks {
  std::vector<Host> workers;
  std::vector<Host> servers;
};

// Ranks go to the hosts in their order, each host's slots before the next one's. `colocated`:
// server i shares the slot of worker i where the hosts' roles allow it; else servers take slots
// that no worker has. Throws ConfigError that says how many slots are missing; `path` is what it
// calls the hosts.
HostRanks AssignRanks(const std::vector<Host>& hosts, int workers, int servers, bool colocated,
                      const std::string& path);

// How many cores each of the workers, which are on these hosts, has for itself: where the fewest
// are, so that no worker is slower than the others. `cores`: of each host, by its name. At least 1.
int CoresForEachWorker(const std::vector<Host>& workers, const std::map<std::string, int>& cores);

}  // namespace poseidon
