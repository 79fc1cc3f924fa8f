// From the words of a command line to a verb that runs.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/error.h"

namespace poseidon {

// Runs `poseidon ARGUMENTS`: sets the flags that the verb takes and calls it, or writes help to
// `out`. Flags are --name=value or --name value; a switch is --name or --noname; dashes in names
// are as good as underscores. Throws ConfigError for an unknown verb, an unknown flag or one of
// another verb (naming the nearest), a value that the flag can't have, and words that are neither.
//
// Not thread-safe: flags are global.
ExitCode RunCommand(const std::vector<std::string>& arguments, std::ostream& out);

}  // namespace poseidon
