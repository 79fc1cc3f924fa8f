// `poseidon keep`: a daemon that is started again when it dies.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace poseidon {

// Without a daemon: says how it is named.
ExitCode KeepVerb();
ExitCode KeepProgramVerb(const std::vector<std::string>& daemon);

}  // namespace poseidon
