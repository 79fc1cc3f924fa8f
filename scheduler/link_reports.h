// What the workers have measured of their links, put together.
#pragma once

#include <vector>

#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// The network that the planner is to count on: `described`, but with the median of the workers'
// latencies, less what it says that a message costs, and the goodput of the slowest kind of link,
// those of one distance being a kind; a kind's is the upper quartile of the workers', since bursts
// that meet make goodput seem lower than it is.
Network NetworkOf(const std::vector<wire::LinkReport>& reports, const Network& described);

// Whether a report can be what a worker of that many has measured.
bool IsPlausible(const wire::LinkReport& report, int workers);

// Whether server i is on worker i's machine for every rank that both have.
bool AreColocated(const wire::View& view);

}  // namespace poseidon
