// `poseidon doctor`: whether a job's machines are fit for it, before it runs.
#pragma once

#include "core/error.h"

namespace poseidon {

// Reads the flags of `poseidon doctor --help`, looks at the hosts, or at this machine if there are
// none, and shows a line a finding. Returns kConfigError if one is an error. Throws Error for flags
// and files that can't be.
ExitCode DoctorVerb();

}  // namespace poseidon
