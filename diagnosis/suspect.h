// Suspect: whom a job's own account of its end names, and as what. The account is a sentence for
// people (docs/errors.md); these functions know the few shapes that it has.
#pragma once

#include <optional>
#include <string>

#include "diagnosis/job_files.h"
#include "transport/address.h"

namespace poseidon {

struct Suspect {
  enum class Kind {
    kFailed,     // ended with a message of its own
    kSeenToDie,  // its launcher has seen how its process ended
    kSilent,     // its heartbeat stopped
    kStalled,    // others have waited too long for it, and its heartbeat still arrived
    kMissing,    // the first of those that had not joined when all were waited for too long
  };
  NodeId node;
  Kind kind = Kind::kFailed;
  // kFailed: its message. kSeenToDie: how: "was killed by signal 9 (SIGKILL)".
  std::string detail;
  // The machine's name or address; empty: unknown.
  std::string host;
};

// Whom a sentence names: "lost worker 1 (node1, process 4711), last heard 9 s ago".
std::optional<Suspect> FindSuspect(const std::string& reason);

// Whether a node's file is of the job's end. That of one which the job has gone on without is not:
// another has taken its place, or the job does without it.
bool TellsOfTheEnd(const EventFile& file);

// Whom the job's accounts name: the scheduler's first, then those of nodes that have failed
// themselves, the earliest first, then the others'.
std::optional<Suspect> FindSuspect(const JobFiles& job);

}  // namespace poseidon
