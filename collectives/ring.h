// Reduce-scatter and all-gather around a ring (Gibiansky, "Bringing HPC techniques to deep
// learning", Baidu 2017; Patarasuk and Yuan 2009): each worker sends only to the next one. The
// range is cut into as many pieces as there are workers; each phase takes P - 1 steps and moves (P
// - 1)/P of the range through every link, the least that is possible. Pure functions.
//
// Reduce-scatter: in step i the worker at index r sends piece r - i and adds piece r - i - 1; at
// the end it owns piece r + 1. A piece's sum is taken in the order of the ring, starting with the
// worker of its index. All-gather, the way back: in step i the worker at index r sends piece r + 1
// - i and receives piece r - i.
#pragma once

#include <optional>
#include <vector>

#include "collectives/group.h"
#include "collectives/schedule.h"

namespace poseidon {

// Steps that a phase takes, and step numbers that it uses.
constexpr int RingSteps(int workers) { return workers - 1; }
// Operations of a worker's phase.
constexpr int RingOperations(int workers) { return 2 * RingSteps(workers); }

Operation RingOperation(const Phase& phase, int index);
// Index of the operation that waits for what `peer` sends in `step`, if one does.
std::optional<int> RingAwaiting(const Phase& phase, int peer, int step);
// What the worker owns after the reduce-scatter.
Range RingOwned(const Phase& phase);

// All-gather of blocks of any sizes, a worker's each: in step i worker r sends block r - i.
Schedule RingAllGather(const std::vector<Range>& blocks, const Group& group);

}  // namespace poseidon
