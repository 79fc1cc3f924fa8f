// `poseidon keys`: the key that a job's nodes share. See transport/security/job_key.h.
#pragma once

#include "core/error.h"

namespace poseidon {

// Reads --out and writes job.key there. Throws Error if the file is there already or can't be
// written, ConfigError without --out.
ExitCode KeysVerb();

}  // namespace poseidon
