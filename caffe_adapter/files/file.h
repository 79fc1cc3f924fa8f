// Whole files.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// All bytes of a regular file of at most kMostFileBytes (core/files/regular_file.h). Throws
// DataError naming it if it can't be read.
std::string ReadFile(const std::string& path);

// A text file without its byte order mark, if it has one. Throws DataError.
std::string ReadText(const std::string& path);

// Its lines, without line ends and trailing blanks. Throws DataError.
std::vector<std::string> ReadLines(const std::string& path);

}  // namespace poseidon
