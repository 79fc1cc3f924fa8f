// The planner: a scheme for every layer, its KV pairs, and who owns them.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "scheduler/information_book.h"

namespace poseidon {

// KV pairs go to servers by size, largest first onto the least loaded (Graham's longest processing
// time rule), within a server likewise to lanes; equal loads go to the lowest index, so the same
// book gives the same plan everywhere.
Plan MakePlan(const InformationBook& book, const Communication& communication);

// Floats of KV pairs owned by each server.
std::vector<int64_t> ServerLoads(const Plan& plan);

// The fullest server's load over the mean; 1 is even. 1 if no layer uses servers.
double LoadImbalance(const Plan& plan);

}  // namespace poseidon
