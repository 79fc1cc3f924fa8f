// `poseidon timeline`: what all nodes of a job did, on one clock, for Perfetto.
#pragma once

#include <string>

#include "core/error.h"

namespace poseidon {

// Merges what the job has left in `directory` into `out`, or into timeline.json there if that is
// empty, and shows how the machines' clocks differ. Throws Error if the job has left nothing, or a
// file can't be read or written.
ExitCode WriteTimeline(const std::string& directory, const std::string& out);

}  // namespace poseidon
