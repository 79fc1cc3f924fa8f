// Whom the scheduler of a job has given up, and why, as its journal tells: a process that was
// stopped or hangs, or whose machine has gone, and not one that leaves an elastic job. Whoever has
// started it may end what is left of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "core/files/journal_file.h"

namespace poseidon {

// What a scheduler's journal is called in OUT.
inline constexpr const char* kJournalFile = "scheduler.journal";

// Not thread-safe.
//
//   GivenUpProcesses given_up("out/scheduler.journal");
//   for (const auto& [incarnation, cause] : given_up.TakeNew()) End(incarnation);
class GivenUpProcesses {
 public:
  // A journal's path; it need not be there yet.
  explicit GivenUpProcesses(std::string journal) : journal_(std::move(journal)) {}

  // By the incarnation of a process, why: "no heartbeat for 9 s". Those of whom it was written
  // since the last call.
  std::map<uint64_t, std::string> TakeNew();

 private:
  JournalFollower journal_;
};

}  // namespace poseidon
