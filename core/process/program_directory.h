// Where this program's file is, and what belongs to it: the other programs beside it, and files
// that are no programs.
#pragma once

#include <string>

namespace poseidon {

// Without a slash at its end.
std::string ProgramDirectory();

// The working directory, by the path by which it was entered (PWD) if that leads there: on machines
// that mount a directory at the same path, it need not be a link to the same place.
std::string NamedWorkingDirectory();

// A library or script that the programs need: beside them, as the build has it, or in
// ../lib/poseidon, where it is installed. It may not be there: then the path is the former.
std::string SupportFile(const std::string& name);

}  // namespace poseidon
