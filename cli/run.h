// `poseidon run`: a whole cluster on this machine.
#pragma once

#include "core/error.h"

namespace poseidon {

// Reads --config, --workers, --servers, --out. Throws Error.
ExitCode RunVerb();

}  // namespace poseidon
