// Silence: why a node whose heartbeat stopped was silent.
#pragma once

#include <string>
#include <vector>

#include "diagnosis/explanation.h"
#include "diagnosis/job_files.h"

namespace poseidon {

struct Judgment {
  Cause cause = Cause::kUnknown;
  std::vector<std::string> evidence;  // sentences
};

// Told from what the others' kernels have seen of their connections to it, and from what it has
// kept itself, if it lived to write that down: a dead process's connections are closed by its
// machine; the machine of a stopped one confirms what nobody reads; behind a network that is cut
// nothing is confirmed, while both sides live.
Judgment JudgeSilence(const JobFiles& job, const NodeId& silent);

}  // namespace poseidon
