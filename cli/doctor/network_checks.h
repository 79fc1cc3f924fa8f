// What the measured network means for a job: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/finding.h"
#include "launch/doctor/link_measurement.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// One that was measured, in one direction; the ends are hosts' names.
struct HostLink {
  std::string from;
  std::string to;
  double latency_seconds = 0;
  double goodput_bytes_per_second = 0;  // 0: nothing has arrived
};

// `names` are the hosts', by the reports' ranks.
std::vector<HostLink> LinksBetween(const std::vector<wire::LinkReport>& reports,
                                   const std::vector<std::string>& names);

// What daemons on the hosts have found, with a scheduler at the host and port of `cluster`.
// `taken`: somebody listens at that port now, so they had another one, which a firewall may close.
Findings CheckPorts(const Cluster& cluster, bool taken, const LinkMeasurements& measured);

// A finding for each link, beside what `claimed` says of it; no network is claimed where the config
// does not describe one. Where there are more than all of 8 hosts' a finding for all good ones
// together, one for each of the ten worst of the others, and one for the rest.
Findings CheckLinks(const std::vector<HostLink>& links, const std::optional<Network>& claimed);

// What the planner makes of the job with the network that the config describes, or with the
// defaults where it describes none, and with `measured`: the same, but for what was measured of it.
Findings ComparePlans(const Job& job, const ModelSpec& model, const Network& measured);

}  // namespace poseidon
