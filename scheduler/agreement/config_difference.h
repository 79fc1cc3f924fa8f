// Why a node does not belong to a scheduler's job: what differs between their job configs.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace poseidon {

// For people, of a node that is refused: "its job config differs from the scheduler's: ...", with
// the first field that differs and both values, and what to do. Of two runs of `poseidon run`
// (Job.run), which have come upon the same port, it says that, and of a process that was started by
// hand with the file that `poseidon run` was given, which file it needs. `node` is null if it has
// not sent its config.
std::string DescribeDifference(const Job& scheduler, const Job* node);

// Only the first field that differs, with both values, and how many others do: "communication.lanes
// is 2, the scheduler's is 1; and 3 more fields". "" if none does, or `node` is null.
std::string DescribeFields(const Job& scheduler, const Job* node);

}  // namespace poseidon
