// `poseidon run`: a whole cluster on this machine.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace poseidon {

// Reads --config, --workers, --servers, --out. Throws Error.
ExitCode RunVerb();

// Likewise with a program of the user's as each worker: one that uses BVLC Caffe, unmodified
// (docs/caffe.md).
ExitCode RunProgramVerb(const std::vector<std::string>& program);

}  // namespace poseidon
