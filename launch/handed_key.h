// How a job's key gets to other machines: in the job's file, which is sent to each by its remote
// shell. Here it is in a file of its own. Functions without state.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace poseidon {

// The job as other machines are to have it: with its key itself in the place of the name of a file
// of this machine. Throws ConfigError if the key can't be read.
Job WithKeyInside(Job job);

// DIRECTORY/run.key: the key that was made for the job that has the directory.
std::string MadeKeyFile(const std::string& directory);

// Makes a key for a job whose config has no `security`: that file, in the place of an earlier
// job's. Throws Error if it can't be written.
void MakeKeyIfOpen(Job& job, const std::string& directory);

// Before a job's file is written that others may read: a key that is in the job itself goes to the
// file DIRECTORY/config.key, which its owner alone can read. If another key is there it is an
// earlier job's: `alone`, as nobody else has the directory, it is replaced. Throws ConfigError if
// the job's is no key, and Error if it can't be written, or another one is there.
void MoveKeyToFile(Job& job, const std::string& directory, bool alone);

}  // namespace poseidon
