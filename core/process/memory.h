// How much memory a process can still take, for programs that know how much they will need.
// Thread-safe.
#pragma once

#include <cstdint>

namespace poseidon {

// Bytes: the least of what the machine has left without swapping (MemAvailable of /proc/meminfo),
// and what the process's limit of address space (`ulimit -v`) leaves. Containers' limits are not
// looked at. More than any machine has, where neither can be read.
int64_t AvailableMemory();

// How many processes the machine has killed since its start because it had no memory left, 0 where
// that can't be read.
int64_t OutOfMemoryKills();

// Bytes that the process has in memory; 0 where that can't be read.
int64_t ResidentMemory();

}  // namespace poseidon
