// The files that a command line names.
#pragma once

#include <optional>
#include <string>

namespace poseidon {

// The file that may have been meant by `path`, where that is not there: the same path from a
// directory above this program, as in a repository whose root is not the working directory; from
// ../share/poseidon, where an installation has its configs; or a file beside with a similar name.
std::optional<std::string> FileMeantBy(const std::string& path);

// `path`, which must be there. Throws ConfigError that says where it was looked for and, where
// there is one, the file that may have been meant.
const std::string& CheckInputFile(const std::string& path);

}  // namespace poseidon
