#include "core/process/resource_limits.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <system_error>
#include <thread>
#include <vector>

namespace poseidon {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
// Stacks and memory pools of a daemon's threads, and messages on their way. Below 100 MiB OpenBLAS
// looks for memory for ever.
constexpr uint64_t kAddressSpace = 256 * kMiB;
constexpr uint64_t kAddressSpaceOfCore = 64 * kMiB;
// Daemons die of 128 KiB and live with 256.
constexpr uint64_t kStack = 1 * kMiB;
// Sockets and their wake-up pipes, logs and a database: a job of two nodes needs some forty.
constexpr uint64_t kOpenFiles = 64;
// Where there is room for so many, nothing is tried.
constexpr uint64_t kManyThreads = 4096;
// What a soft limit is raised to: a job that grows is not to ask again, and programs that close all
// they may have open still do so within milliseconds.
constexpr uint64_t kManyFiles = 65536;

std::optional<uint64_t> LimitOf(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return std::nullopt;
  if (limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

// Rounded up.
std::string InKiB(uint64_t bytes) { return std::to_string((bytes + kKiB - 1) / kKiB); }

std::string TooSmall(const std::string& what, const std::string& limit, const std::string& needed,
                     const std::string& flag) {
  return "the limit of " + what + " is " + limit + "; this program needs at least " + needed +
         ": raise it, as by `ulimit " + flag + " " + needed + "`";
}

// How many of `wanted` threads can be started, all at a time.
uint64_t TryThreads(uint64_t wanted) {
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::vector<std::thread> threads;
  try {
    while (threads.size() < wanted) threads.emplace_back([released] { released.wait(); });
  } catch (const std::system_error&) {
    // So many it is.
  }
  release.set_value();
  for (std::thread& thread : threads) thread.join();
  return threads.size();
}

}  // namespace

ResourceLimits ReadResourceLimits() {
  return {LimitOf(RLIMIT_AS), LimitOf(RLIMIT_STACK), LimitOf(RLIMIT_NOFILE)};
}

ResourceUse ReadResourceUse() {
  ResourceUse use;
  uint64_t pages = 0;
  if (std::ifstream("/proc/self/statm") >> pages) {
    use.address_space = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
  use.cores = std::max(1U, std::thread::hardware_concurrency());
  return use;
}

std::optional<std::string> FindShortage(const ResourceLimits& limits, const ResourceUse& use) {
  const uint64_t space = use.address_space + kAddressSpace + use.cores * kAddressSpaceOfCore;
  if (limits.address_space && *limits.address_space < space) {
    return TooSmall("address space in KiB", std::to_string(*limits.address_space / kKiB),
                    InKiB(space), "-v");
  }
  if (limits.stack && *limits.stack < kStack) {
    return TooSmall("a stack in KiB", std::to_string(*limits.stack / kKiB), InKiB(kStack), "-s");
  }
  if (limits.open_files && *limits.open_files < kOpenFiles) {
    return TooSmall("open files", std::to_string(*limits.open_files), std::to_string(kOpenFiles),
                    "-n");
  }
  return std::nullopt;
}

std::optional<std::string> FindThreadShortage(int needed, const std::string& who,
                                              const GroupAllowance& group) {
  const std::optional<uint64_t> limit = LimitOf(RLIMIT_NPROC);
  const auto count = static_cast<uint64_t>(needed);
  const uint64_t many = std::max(kManyThreads, 2 * count);
  const auto left_in_group = static_cast<uint64_t>(group.threads);
  if ((!limit || *limit >= many) && left_in_group >= many) return std::nullopt;
  const uint64_t startable = TryThreads(count);
  if (startable == count) return std::nullopt;
  const std::string besides = " may start no more than " + std::to_string(startable) +
                              " threads besides those that run, and " + who + " needs " +
                              std::to_string(needed) + ": ";
  if (limit && left_in_group >= count) {
    return "this user" + besides + "the limit is " + std::to_string(*limit) +
           " (ulimit -u); raise it";
  }
  return "this container or service" + besides +
         "its control group has a limit (pids.max); raise it, as by docker run --pids-limit or "
         "systemd's TasksMax";
}

uint64_t CountOpenFiles() {
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : static_cast<uint64_t>(std::distance(begin(files), end(files)));
}

std::optional<std::string> ClaimOpenFiles(uint64_t needed, const std::string& need) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return std::nullopt;
  // No limit, RLIM_INFINITY, is more than any.
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, std::max(needed, kManyFiles));
  if (setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= needed) return std::nullopt;
  return "a process may open no more than " + std::to_string(limit.rlim_max) + " files, and " +
         need + " " + std::to_string(needed) +
         ": raise the hard limit (ulimit -Hn), as by nofile in /etc/security/limits.conf";
}

}  // namespace poseidon
