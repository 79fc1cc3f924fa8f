// How a job's key gets to other machines: in the job's file, which is sent to each by its remote
// shell. Here it is in a file of its own. Functions without state.
#pragma once

#include <string>

#include "proto/job.pb.h"

namespace poseidon {

// The job as other machines are to have it: with its key itself in the place of the name of a file
// of this machine. Throws ConfigError if the key can't be read.
Job WithKeyInside(Job job);

// Makes a key for a job whose config has no `security`: the file DIRECTORY/job.key, in the place of
// one that is there. Throws Error if it can't be written.
void MakeKeyIfOpen(Job& job, const std::string& directory);

// Before a job's file is written that others may read: a key that is in the job itself goes to that
// file, which its owner alone can read. Throws ConfigError if it is no key, and Error likewise.
void MoveKeyToFile(Job& job, const std::string& directory);

}  // namespace poseidon
