#include "core/process/machine_clock.h"

#include <fstream>

namespace poseidon {

std::string MachineClock() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name;
}

std::chrono::nanoseconds WallClockOffset() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::system_clock::now().time_since_epoch() -
      std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace poseidon
