// `poseidon launch slurm`: a job as a batch job of Slurm's.
#pragma once

#include "core/error.h"

namespace poseidon {

// Reads the flags of `poseidon launch slurm --help`, writes OUT/job.sbatch and submits it. Throws
// Error for flags and files that can't be, and where sbatch refuses the script.
ExitCode LaunchSlurmVerb();

}  // namespace poseidon
