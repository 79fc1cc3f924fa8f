// How `poseidon doctor` shows what it has found. Pure functions.
#pragma once

#include <string>

#include "launch/doctor/finding.h"

namespace poseidon {

// For people: a line a finding, "error    clocks    the clock ... is 3.2 s ahead; mend: ...", and a
// last one that counts them.
std::string FindingsText(const Findings& findings);

// For programs: `findings[]` with `level` (good, warning, error), `check`, `text` and `mend` (null
// where nothing is to be mended); `errors` and `warnings`, which count them.
std::string FindingsJson(const Findings& findings);

int CountOf(FindingLevel level, const Findings& findings);

}  // namespace poseidon
