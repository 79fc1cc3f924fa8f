// Reduce-scatter and all-gather by recursive halving and doubling: as many bytes as the ring in
// 2 log2 P steps instead of 2 (P - 1) (Thakur, Rabenseifner, Gropp 2005; Goyal et al. 2017,
// "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", section 4).
//
// A power of two: in each step of the reduce-scatter two workers exchange halves of what they both
// have and each adds the half that it keeps; the distance doubles as the range halves. The
// all-gather does the same backwards.
//
// Any other number: binary blocks (Rabenseifner 2004; as in the paper above). The group is cut into
// blocks of descending powers of two, each block reduces for itself, and the smaller blocks' sums
// go up to the next larger block, piece by piece; only workers of the largest block own anything at
// the end. The all-gather goes down the same way. That takes 2 floor(log2 P) steps, but a worker's
// share of the traffic depends on its place: over chunks, rotate the group.
//
// Pure functions.
#pragma once

#include <optional>
#include <vector>

#include "collectives/group.h"
#include "collectives/schedule.h"

namespace poseidon {

// Step numbers that a phase uses; one more than it takes steps.
int HalvingDoublingStepNumbers(int workers);
// Longest chain of messages of a phase.
int HalvingDoublingSteps(int workers);

// Operations of a worker's phase, which are as many to gather as to reduce.
int HalvingDoublingOperations(const Group& group);
Operation HalvingDoublingOperation(const Phase& phase, int index);
// Index of the operation that waits for what `peer` sends in `step`, if one does.
std::optional<int> HalvingDoublingAwaiting(const Phase& phase, int peer, int step);
// What the worker owns after the reduce-scatter.
Range HalvingDoublingOwned(const Phase& phase);

// All-gather of blocks of any sizes, a worker's each, by Bruck's algorithm (Bruck et al. 1997,
// "Efficient algorithms for all-to-all communications in multiport message-passing systems"), in
// place: before the step of distance d = 1, 2, 4, ... worker r has the blocks r ... r + d - 1 and
// gives as many of them as are missing there to worker r - d. ceil(log2 P) steps for any P. Blocks
// that follow each other in memory are one message, as far as that may go (kMostBodyBytes).
Schedule DoublingAllGather(const std::vector<Range>& blocks, const Group& group);

}  // namespace poseidon
