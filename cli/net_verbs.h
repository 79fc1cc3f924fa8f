// `poseidon time` and `poseidon test`: a net on this machine, without a cluster. The arithmetic is
// poseidon_net's, which these start in their place.
#pragma once

#include "core/error.h"

namespace poseidon {

// Read the flags of their help. Return only by throwing Error, if the program can't be started.
ExitCode TimeVerb();
ExitCode TestVerb();

}  // namespace poseidon
