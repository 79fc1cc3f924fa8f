// What of the machine's cores, memory and threads this process may use: less than all where it is
// pinned (taskset, srun), and in control groups with limits, as containers, services and jobs of a
// batch system are. Thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

namespace poseidon {

// How many cores the calling thread may use at a time, at least 1; of a part of a core nothing is
// counted.
int UsableCores();

// What the control groups of this process, and those above them, leave it.
struct GroupAllowance {
  double cores = std::numeric_limits<double>::infinity();
  // Bytes. What a group has read of files and not used lately counts as free, since the kernel
  // takes it back.
  int64_t memory = std::numeric_limits<int64_t>::max();
  // That may be started besides those that run.
  int64_t threads = std::numeric_limits<int64_t>::max();
};

// Of control groups of version 1 or 2. `root`: before the paths of /proc and /sys, for tests.
GroupAllowance ReadGroupAllowance(const std::string& root = "");

}  // namespace poseidon
