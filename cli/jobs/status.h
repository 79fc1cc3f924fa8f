// `poseidon status`: what a job does, in a terminal or as a page in a file.
#pragma once

#include <string>

#include "core/error.h"
#include "scheduler/monitor/monitor_client.h"

namespace poseidon {

ExitCode StatusVerb();

// Whether the output is a terminal that takes the escapes which clear it. `type`: what TERM says of
// it, such as "dumb" of an editor's; nullptr: nothing.
bool CanBeCleared(bool is_terminal, const char* type);

// Where the job of an output directory has its monitor, with the token in `token_file`, or else in
// the file that the job names. Throws ConfigError if another user could have named that.
MonitorAddress MonitorOf(const std::string& directory, const std::string& token_file);

}  // namespace poseidon
