// `poseidon leave`: a worker leaves a job that goes on. See docs/recovery.md.
#pragma once

#include <string>

#include "core/error.h"
#include "proto/job.pb.h"

namespace poseidon {

// Reads --worker, and --config or --scheduler. Throws Error with the scheduler's reason if the
// worker can't leave, and if no scheduler answers.
ExitCode LeaveVerb();

// What is said where no scheduler has answered for a while: whom it asks, and for how long. Where
// `config` is a file that `poseidon run` may have been given, the one that it has written is named,
// if it is there. `config` is empty where the file does not say where the scheduler is.
std::string WhomLeaveAsks(const Job& job, const std::string& config);

}  // namespace poseidon
