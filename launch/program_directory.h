// Where this program's file is, and the other programs beside it.
#pragma once

#include <string>

namespace poseidon {

// Without a slash at its end.
std::string ProgramDirectory();

}  // namespace poseidon
