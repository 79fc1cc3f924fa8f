// Whole files.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// All bytes of a file. Throws DataError naming it if it can't be read.
std::string ReadFile(const std::string& path);

// The lines of a text file, without line ends and trailing blanks. Throws DataError.
std::vector<std::string> ReadLines(const std::string& path);

}  // namespace poseidon
