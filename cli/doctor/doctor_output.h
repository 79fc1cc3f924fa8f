// How `poseidon doctor` shows what it has found. Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cli/doctor/network_checks.h"
#include "launch/doctor/finding.h"

namespace poseidon {

// For people: a line a finding, "error    clocks    the clock ... is 3.2 s ahead; mend: ...", and a
// last one that counts them.
std::string FindingsText(const Findings& findings);

// For programs: `findings[]` with `level` (good, warning, error), `check`, `text` and `mend` (null
// where nothing is to be mended); `errors` and `warnings`, which count them; and `links[]`, every
// one that was measured, with `from`, `to`, `latency_ms` and `goodput_bytes_per_second`.
std::string FindingsJson(const Findings& findings, const std::vector<HostLink>& links);

int CountOf(FindingLevel level, const Findings& findings);

}  // namespace poseidon
