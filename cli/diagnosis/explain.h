// `poseidon explain`: why a job has ended.
#pragma once

#include <string>

#include "core/error.h"

namespace poseidon {

// Shows what the job's files in `directory` say of its end: who was first, the likely cause and its
// evidence, what the others waited for. Throws ConfigError if there is no job.
ExitCode ExplainJob(const std::string& directory, bool json);

}  // namespace poseidon
