// How much memory a process can still take, for programs that know how much they will need, and
// what it does with memory that it has freed. Thread-safe.
#pragma once

#include <cstdint>

namespace poseidon {

// Bytes: the least of what the machine has left without swapping (MemAvailable of /proc/meminfo),
// what its control groups leave (core/process/allowance.h), and its limit of address space
// (`ulimit -v`). More than any machine has, where none can be read.
int64_t AvailableMemory();

// How many processes the machine has killed since its start because it had no memory left, 0 where
// that can't be read.
int64_t OutOfMemoryKills();

// Bytes that the process has in memory; 0 where that can't be read.
int64_t ResidentMemory();

// Blocks of up to 32 MiB that are freed from now on stay with the process, for the next that are
// allocated; of what is free at a heap's end up to 64 MiB, beyond that the kernel gets it back.
// glibc does so by itself once a program has freed one block of that size (mallopt(3),
// M_MMAP_THRESHOLD). Before, it gives every block from 128 KiB on back at once, and whoever makes
// and frees such blocks without end gets them page by page and zeroed: half of the time of an
// all-reduce of 4 MiB over loopback. A program that has chosen its own thresholds keeps them.
void KeepFreedMemory();

}  // namespace poseidon
