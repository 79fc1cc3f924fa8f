// The communication that a policy's name stands for, as flags and experiment files call it.
// Functions without state.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/job.pb.h"

namespace poseidon {

// A name, and the communication that it starts from.
using NamedPolicies = std::vector<std::pair<std::string, Communication>>;

// What `poseidon plan` knows: bytes, time, ps, sfb, ring, halving_doubling, torus, adam.
NamedPolicies PlannedPolicies();

// What can be simulated: the systems of the Poseidon paper (arXiv 1706.03292), which wait for all
// layers at the end of an iteration and send first what comes first: `ps`, its baseline, servers
// that hold whole layers (up to the largest KV pair) and get gradients after the backward pass;
// `wfbp`, parameter servers for all layers, overlapped; `poseidon`, that with Algorithm 1. And what
// is planned, with `ps` called `all_ps`.
NamedPolicies SimulatedPolicies();

}  // namespace poseidon
