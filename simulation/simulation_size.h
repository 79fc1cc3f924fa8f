// How large a simulated training is, in messages and in memory, before it is simulated.
//
// Both are estimates. Messages are those that the schemes send; memory was measured
// (docs/performance.md, "The simulator"), so that it is right within a factor of two. Functions
// without state.
#pragma once

#include <cstdint>

#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// Messages of data between nodes in an iteration.
double DataMessages(const Plan& plan);

// Bytes of the cluster's nodes, for a model of so many layers, and of what they write down about
// each iteration.
double NodeMemory(const Cluster& cluster, int layers, int64_t iterations);
// Bytes of the messages that wait at the same time, where that is more than the nodes have: factors
// that every worker sends to every other one.
double MessageMemory(const Plan& plan);

// Throws Error with kFailure if `bytes`, what the simulation of `cluster` needs, are more than
// `available`. `simulations`: how many the process does at a time, which share what is available.
void CheckSimulationMemory(const Cluster& cluster, int64_t iterations, double bytes,
                           int64_t available, int simulations);
// The same of what several simulations of a process take together.
void CheckMemoryOfSimulations(double bytes, int64_t available);

}  // namespace poseidon
