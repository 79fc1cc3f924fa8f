// Whether the workers of a job have files that fit together: the snapshot that training goes on
// from, the training data, the net, its seed, and the values that are not trained.
//
// A value function's sentence ends the job before its first iteration, because nothing would tell
// afterwards: training from scratch where there was a snapshot, on other records, or with another
// dropout_ratio, looks like any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/wire.pb.h"

namespace poseidon {

struct WorkerInputs {
  wire::Node node;
  wire::TrainingInputs inputs;
};

// What does not fit, with both machines' names and what to do; "" if all does. `workers` by rank,
// at least one.
//
// Only worker 0's snapshot counts, so the others may have none, or an older one; one that is newer
// says that worker 0 is not where it was the last time. All else must be the same. What a worker
// does not say (none of its layers reads files, or it is a program of the user's) is not compared.
std::string DescribeDisagreement(const std::vector<WorkerInputs>& workers);

// Whoever takes worker 0's place before anybody has its first values begins where that one would
// have, at `first_iteration`: what keeps it from that and what to do, or "".
std::string DescribeOtherStart(const WorkerInputs& worker, int64_t first_iteration);

// What must be the same of whoever comes when training goes on: its data, net and seed. Snapshots
// have been written since the others looked for one, and values that are not trained come from the
// others.
wire::TrainingInputs WithoutStart(wire::TrainingInputs inputs);

}  // namespace poseidon
