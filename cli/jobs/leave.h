// `poseidon leave`: a worker leaves a job that goes on. See docs/recovery.md.
#pragma once

#include "core/error.h"

namespace poseidon {

// Reads --worker, and --config or --scheduler. Throws Error with the scheduler's reason if the
// worker can't leave, and if no scheduler answers.
ExitCode LeaveVerb();

}  // namespace poseidon
