// Explanation: why a job has ended, from what its nodes have left behind.
//
//   const Explanation why = Explain(ReadJobFiles("out/lenet"));
//   std::cout << ExplanationText(why);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnosis/job_files.h"

namespace poseidon {

enum class Cause {
  kEndedWell,
  kKilled,       // by SIGKILL, or gone without a word
  kCrashed,      // by a signal of its own, as of a failed check
  kOutOfMemory,  // killed by the kernel, or an allocation failed
  kNetworkCut,   // or a machine that is down
  kStopped,      // a process that lives and does nothing: SIGSTOP, a suspended machine
  kSlowDisk,
  kFullDisk,
  kDiverged,
  kSlowWorker,  // a node that answers heartbeats, but does not get on
  kNeverJoined,
  kInterrupted,
  kFailed,  // of its own accord, with a message
  kUnknown,
};

// "killed", "out of memory", ...: for people, and for programs.
const char* NameOf(Cause cause);

// A value.
struct Explanation {
  Cause cause = Cause::kUnknown;
  // Who was first; nobody where the job ended well, or nothing tells.
  std::optional<NodeId> first;
  // How the job ended, by its own account; from summary.json, or else from a node. No code: nobody
  // has told it, as of a job that runs.
  std::optional<int> exit_code;
  std::string reason;
  // Sentences: what speaks for the cause.
  std::vector<std::string> evidence;
  // A sentence for each other node: what it did and waited for.
  std::vector<std::string> waits;
  // A sentence; empty if nothing was exchanged, or nobody was first.
  std::string last_message;
  std::vector<std::string> unreadable;
};

Explanation Explain(const JobFiles& job);

std::string ExplanationText(const Explanation& explanation);
// An object with the members' names; "cause" and "first" as in the text, "first" null if nobody,
// "exit_code" if nobody has told it.
std::string ExplanationJson(const Explanation& explanation);

}  // namespace poseidon
