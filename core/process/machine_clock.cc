#include "core/process/machine_clock.h"

#include <chrono>
#include <fstream>

#include "core/steady_now.h"

namespace poseidon {

std::string MachineClock() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string name;
  std::getline(file, name);
  return name;
}

Duration WallClockOffset() {
  return std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch()) -
         SteadyNow();
}

}  // namespace poseidon
