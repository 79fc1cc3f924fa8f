// The files that a command line names.
#pragma once

#include <string>

namespace poseidon {

// `path`, which must be there. Throws ConfigError that says where it was looked for and, where
// there is one, the file that may have been meant: the same path from a directory above this
// program (as in a repository whose root is not the working directory), or a file beside with a
// similar name.
const std::string& CheckInputFile(const std::string& path);

}  // namespace poseidon
