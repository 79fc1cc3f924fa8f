// The report of an experiment: a page with tables and figures, which a Python script makes.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/program.h"

namespace poseidon {

// Debian's Python has Debian's matplotlib; another one that comes first in PATH may not.
inline constexpr const char* kDebiansPython = "/usr/bin/python3";

// Makes report.html in an experiment's directory from the results that are there. `arguments` are
// the script's. Where there is no file `python`, the python3 that PATH finds runs it. False if no
// report came of it, with a line in `out` that says why. Throws Interrupted.
bool MakeReport(const std::string& directory, const std::vector<std::string>& arguments,
                Interruption& interruption, std::ostream& out,
                const std::string& python = kDebiansPython);

}  // namespace poseidon
