// Whose steady clock this process reads, for those who put what several processes have measured on
// one clock. Functions without state; thread-safe.
#pragma once

#include <chrono>
#include <string>

namespace poseidon {

// Processes of the same running machine, containers included, read the same steady clock, and get
// the same name here, which is that of no other machine and of no other start of this one. Empty
// where the system does not tell.
//
//   MachineClock()  // "0b1d6a52-..."
std::string MachineClock();

// The wall clock minus the steady clock, now.
std::chrono::nanoseconds WallClockOffset();

}  // namespace poseidon
