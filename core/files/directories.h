// Directories for what programs write.
#pragma once

#include <string>

namespace poseidon {

// Makes the directory `path`, and those above it that are not there. Throws ConfigError that names
// it and says why it can't be made ("Not a directory": something of that name is a file), Error of
// kFailure if that may pass, as where the disk is full or its file server has gone.
void MakeDirectories(const std::string& path);

}  // namespace poseidon
