// What the network between hosts does, measured by a small job of real daemons: the workers' own
// probe (client/link_probe.h), which a job has before a plan by time. So it also shows whether the
// nodes of a job find each other, and whether their ports are open.
#pragma once

#include <string>
#include <vector>

#include "core/program.h"
#include "launch/host_list.h"
#include "launch/remote_shell.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

struct LinkMeasurements {
  // By host: its links to all others, or, where there are more than 64 hosts, to those 1, 2, 4, ...
  // places further. As many as have come.
  std::vector<wire::LinkReport> reports;
  std::string failure;  // why the daemons could not do it; empty: they have
  // It is that some were not heard, or not in time, as where a firewall parts them.
  bool is_silence = false;
};

// The least that has links to measure: a layer without time to speak of, for one iteration, on
// nodes that are reached and admitted as those of `job` are.
Job ProbeJob(Job job, int workers);

// One worker on each of `hosts`, a server on the first, the scheduler here. `job` has a scheduler's
// host; what it says of the nodes, the training and the network does not count. Takes a second or
// two and up to half a second a host, or half a minute where the hosts can't reach each other.
// Throws Interrupted().
LinkMeasurements MeasureLinks(const Job& job, const std::vector<Host>& hosts,
                              const RemoteShell& shell, Interruption& interruption);

}  // namespace poseidon
