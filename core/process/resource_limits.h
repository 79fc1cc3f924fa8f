// What the system lets a process have (setrlimit, the shell's ulimit), and whether it is enough to
// start with. Libraries meet a limit with an abort, a segmentation fault or an endless loop.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/process/allowance.h"

namespace poseidon {

// The soft limits; none: without limit.
struct ResourceLimits {
  std::optional<uint64_t> address_space;  // bytes, ulimit -v
  std::optional<uint64_t> stack;          // bytes of the first thread and of all others, ulimit -s
  std::optional<uint64_t> open_files;     // ulimit -n
};

// What this process has of it at its start.
struct ResourceUse {
  uint64_t address_space = 0;  // bytes
  unsigned cores = 1;          // BLAS keeps a thread with buffers for each
};

ResourceLimits ReadResourceLimits();
ResourceUse ReadResourceUse();

// Which limit is too small for any of this project's programs, and what it must be, as a sentence;
// nothing if none is. Pure.
std::optional<std::string> FindShortage(const ResourceLimits& limits, const ResourceUse& use);

// What a program needs before it knows what it is to do: of a daemon with one lane actors, ZeroMQ's
// and BLAS's.
constexpr int kThreadsOfProgram = 16;

// The same of threads, which are counted for all processes of a user (ulimit -u) and of a control
// group (pids.max): tries to start `needed` of them where either leaves few. `who` needs them, for
// the sentence.
std::optional<std::string> FindThreadShortage(int needed = kThreadsOfProgram,
                                              const std::string& who = "this program",
                                              const GroupAllowance& group = ReadGroupAllowance());

// Files, sockets and the like that this process has open; 0 where /proc does not tell.
uint64_t CountOpenFiles();

// Lets this process open `needed` files at a time: where its soft limit is lower it is raised, as
// far as the hard one allows. If that is not enough, a sentence that says so; `need` is its middle:
// "this program needs".
std::optional<std::string> ClaimOpenFiles(uint64_t needed, const std::string& need);

}  // namespace poseidon
