// What schedules cost: for the cost model and for tests. Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/schedule.h"

namespace poseidon {

// Floats of all kSend operations, and of all kAdd and kCopy.
int64_t FloatsSent(const Schedule& schedule);
int64_t FloatsReceived(const Schedule& schedule);
// Floats of all kAdd operations.
int64_t FloatsAdded(const Schedule& schedule);

// Longest chain of messages of which each can only be sent when the one before has been received,
// over all workers' schedules (one each, in the order of ranks). What latency is paid for.
int Rounds(const std::vector<Schedule>& schedules);

// The same for the all-reduce of at least as many floats as there are workers, by formula: 2 (P -
// 1) around a ring, 2 floor(log2 P) by halving and doubling, the dimensions' sum on a torus.
int AllReduceRounds(Scheme scheme, const Plan& grid, int workers);

}  // namespace poseidon
