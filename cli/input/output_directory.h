// Where a verb writes to.
#pragma once

#include <string>

namespace poseidon {

// --out, or else out/NAME for a job or an experiment of that name. Throws ConfigError that names
// `config`, the path of the file with the name, if that leads out of the directory out.
std::string OutputDirectory(const std::string& name, const std::string& config);

}  // namespace poseidon
