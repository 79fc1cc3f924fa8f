// The errors of the public interface (include/poseidon/error.h), and what only rooms need of them.
// Our own bugs are CHECK (glog) instead.
#pragma once

#include <string>

#include "poseidon/error.h"

namespace poseidon {

// Throws `reason`, which has come from elsewhere, as the class of the interface that has the exit
// code.
[[noreturn]] void ThrowAs(ExitCode exit_code, const std::string& reason);

}  // namespace poseidon
