#include "core/process/allowance.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "core/text/split.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// The first number of a file; nothing if there is none, as where a limit is "max".
std::optional<int64_t> NumberIn(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// What a file names both in version 2 and in version 1 of control groups, by either name.
std::optional<int64_t> NumberIn(const fs::path& group, const char* name, const char* old_name) {
  const auto number = NumberIn(group / name);
  return number ? number : NumberIn(group / old_name);
}

// Bytes of files that nobody has used lately, of the group and those below.
int64_t IdleFiles(const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  int64_t idle = 0;
  std::string name;
  for (int64_t bytes = 0; file >> name >> bytes;) {
    // In version 1 the former are without those below, and come first.
    if (name == "inactive_file" || name == "total_inactive_file") idle = bytes;
  }
  return idle;
}

double CoresOf(const fs::path& group) {
  int64_t quota = 0;
  int64_t period = 0;
  std::ifstream file(group / "cpu.max");  // both numbers
  if (!(file >> quota >> period)) {
    quota = NumberIn(group / "cpu.cfs_quota_us").value_or(0);
    period = NumberIn(group / "cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) return GroupAllowance().cores;
  return static_cast<double>(quota) / static_cast<double>(period);
}

int64_t MemoryOf(const fs::path& group) {
  const auto limit = NumberIn(group, "memory.max", "memory.limit_in_bytes");
  const auto used = NumberIn(group, "memory.current", "memory.usage_in_bytes");
  if (!limit || !used) return GroupAllowance().memory;
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - IdleFiles(group)));
}

// Both versions have the same names.
int64_t FreeThreadsOf(const fs::path& group) {
  const auto limit = NumberIn(group / "pids.max");
  const auto running = NumberIn(group / "pids.current");
  if (!limit || !running) return GroupAllowance().threads;
  return std::max<int64_t>(0, *limit - *running);
}

// Those that the system pins the thread to, of all there are.
int PinnedCores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) return CPU_COUNT(&cores);
  // There are more than the set can hold.
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int UsableCores() {
  const double allowed = std::min<double>(PinnedCores(), ReadGroupAllowance().cores);
  return std::max(1, static_cast<int>(allowed));
}

GroupAllowance ReadGroupAllowance(const std::string& root) {
  GroupAllowance least;
  std::ifstream groups(root + "/proc/self/cgroup");
  // A line is number:controllers:path; version 2 has one hierarchy, without names of controllers.
  std::string controllers;
  std::string path;
  while (std::getline(groups.ignore(std::numeric_limits<std::streamsize>::max(), ':'), controllers,
                      ':') &&
         std::getline(groups, path)) {
    std::vector<std::string> hierarchies = SplitAtCommas(controllers);
    // Kernels name several in another order than the directory has, which has links then.
    if (hierarchies.size() != 1) hierarchies.push_back(controllers);
    for (const std::string& hierarchy : hierarchies) {
      const fs::path mount = fs::path(root) / "sys/fs/cgroup" / hierarchy;
      // A container may not see the groups above its own, and finds the own one in their place.
      for (fs::path below = fs::path(path).relative_path();; below = below.parent_path()) {
        least.cores = std::min(least.cores, CoresOf(mount / below));
        least.memory = std::min(least.memory, MemoryOf(mount / below));
        least.threads = std::min(least.threads, FreeThreadsOf(mount / below));
        if (below.empty()) break;
      }
    }
  }
  return least;
}

}  // namespace poseidon
