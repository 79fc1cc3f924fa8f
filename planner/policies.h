// The communication that a policy's name stands for, as flags and experiment files call it.
// Functions without state.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/job.pb.h"

namespace poseidon {

// A name, and the communication that it starts from.
using NamedPolicies = std::vector<std::pair<std::string, Communication>>;

// What a job config knows, by the same names: BYTES, TIME, ALL_PS, ALL_SFB, ALL_RING,
// ALL_HALVING_DOUBLING, ALL_TORUS, ALL_ADAM.
NamedPolicies PlannedPolicies();

// What can be simulated: the systems of the Poseidon paper (arXiv 1706.03292), which wait for all
// layers at the end of an iteration, send first what comes first and have one data lane: CAFFE_PS,
// its baseline, servers that hold whole layers (up to the largest KV pair) and get gradients after
// the backward pass; WFBP, parameter servers for all layers, overlapped; POSEIDON, that with
// Algorithm 1. And what is planned.
NamedPolicies SimulatedPolicies();

// The policy that is called so, in letters of either case; nullopt if none is. Names of before are
// known, too: "ring" for ALL_RING, and "ps" for CAFFE_PS, or for ALL_PS where the former is not one
// of the policies.
std::optional<NamedPolicies::value_type> FindPolicy(const NamedPolicies& policies,
                                                    const std::string& name);

// "\"ring\" is now called ALL_RING" where `name` is a name of before; else empty.
std::string RenamingOf(const std::string& name, const std::string& policy);

// What experiments call the system that is just this policy: "ring" for ALL_RING, "ps" for
// CAFFE_PS, "all_ps" for ALL_PS.
std::string SystemOf(const std::string& policy);

}  // namespace poseidon
