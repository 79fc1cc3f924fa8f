#include "core/process/memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "core/process/allowance.h"

namespace poseidon {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

int64_t MachineHasLeft() {
  constexpr int64_t kKibibyte = 1024;
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::string unit;
  for (int64_t amount = 0; file >> name >> amount;) {
    if (name == "MemAvailable:") return amount * kKibibyte;
    std::getline(file, unit);
  }
  return kUnlimited;
}

// One of the numbers of pages in /proc/self/statm, in bytes: 0 is the address space, 1 what is in
// memory.
int64_t OwnBytes(int index) {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  for (int i = 0; i <= index; ++i) {
    if (!(file >> pages)) return 0;
  }
  return pages * sysconf(_SC_PAGESIZE);
}

int64_t LimitLeaves() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return std::max<int64_t>(0, static_cast<int64_t>(limit.rlim_cur) - OwnBytes(0));
}

}  // namespace

int64_t AvailableMemory() {
  return std::min({MachineHasLeft(), LimitLeaves(), ReadGroupAllowance().memory});
}

int64_t OutOfMemoryKills() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  for (int64_t count = 0; file >> name >> count;) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

int64_t ResidentMemory() { return OwnBytes(1); }

void KeepFreedMemory() {
  // glibc's thresholds follow blocks of up to this size, its own bookkeeping included.
  constexpr size_t kLargestThreshold = 32 << 20;
  constexpr size_t kBookkeeping = 64 << 10;
  // Nobody touches the block, so it takes no memory. A compiler would leave out a block whose
  // pointer nobody sees.
  void* volatile block = std::malloc(kLargestThreshold - kBookkeeping);
  std::free(block);
}

}  // namespace poseidon
