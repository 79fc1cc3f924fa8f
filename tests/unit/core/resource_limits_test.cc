#include "core/process/resource_limits.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <iostream>

namespace poseidon {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(ResourceLimits, WithoutLimitsNothingIsTooSmall) {
  EXPECT_EQ(FindShortage({}, {.address_space = 1000 * kMiB, .cores = 1000}), std::nullopt);
}

TEST(ResourceLimits, AddressSpaceCountsWhatIsTakenAndEachCore) {
  const ResourceUse use = {.address_space = 300 * kMiB, .cores = 2};
  constexpr uint64_t kNeeded = (300 + 256 + 2 * 64) * kMiB;
  EXPECT_EQ(FindShortage({.address_space = kNeeded, .stack = {}, .open_files = {}}, use),
            std::nullopt);
  EXPECT_EQ(
      FindShortage({.address_space = kNeeded - 1, .stack = {}, .open_files = {}}, use),
      "the limit of address space in KiB is 700415; this program needs at least 700416: raise "
      "it, as by `ulimit -v 700416`");
}

TEST(ResourceLimits, SmallStacksAndFewFilesAreNamed) {
  const ResourceUse use;
  EXPECT_EQ(FindShortage({.address_space = {}, .stack = 64 * 1024, .open_files = {}}, use),
            "the limit of a stack in KiB is 64; this program needs at least 1024: raise it, as by "
            "`ulimit -s 1024`");
  EXPECT_EQ(
      FindShortage({.address_space = {}, .stack = {}, .open_files = 20}, use),
      "the limit of open files is 20; this program needs at least 64: raise it, as by `ulimit "
      "-n 64`");
  EXPECT_EQ(FindShortage({.address_space = {}, .stack = kMiB, .open_files = 64}, use),
            std::nullopt);
}

TEST(ResourceLimits, ThisProcessHasEnough) {
  EXPECT_GT(ReadResourceUse().address_space, kMiB);
  EXPECT_EQ(FindShortage(ReadResourceLimits(), ReadResourceUse()), std::nullopt);
  EXPECT_EQ(FindThreadShortage(), std::nullopt);
}

// Of 16 threads where the user may have few, and its groups let it start as many as `group` says.
// That limit is none for root. Whatever else the user runs counts, too.
void TrialWithFewThreads(const GroupAllowance& group) {
  constexpr uid_t kNobody = 65534;
  if (geteuid() == 0 && setuid(kNobody) != 0) _exit(9);
  const rlimit few = {4, 4};
  setrlimit(RLIMIT_NPROC, &few);
  std::cerr << FindThreadShortage(16, "a test", group).value_or("enough") << std::endl;
  _exit(0);
}

TEST(ResourceLimits, TheLimitOfThreadsThatIsTooLowIsNamed) {
  const testing::ExitedWithCode well(0);
  EXPECT_EXIT(TrialWithFewThreads({}), well,
              "^this user may start no more than [0-3] threads besides those that run, and a test "
              "needs 16: the limit is 4 .ulimit -u.; raise it\n$");
  GroupAllowance group;
  group.threads = 3;
  EXPECT_EXIT(TrialWithFewThreads(group), well,
              "^this container or service may start no more than [0-3] threads besides those that "
              "run, and a test needs 16: its control group has a limit .pids.max.; raise it, as by "
              "docker run --pids-limit or systemd's TasksMax\n$");
}

TEST(ResourceLimits, WhereAGroupLeavesFewThreadsTheyAreTried) {
  GroupAllowance group;
  group.threads = 3;  // others may have ended meanwhile
  EXPECT_EQ(FindThreadShortage(16, "a test", group), std::nullopt);
}

// In a process of its own, for a hard limit that was lowered stays so.
void ClaimOfFewFiles(uint64_t needed) {
  rlimit few = {.rlim_cur = 100, .rlim_max = 4096};
  setrlimit(RLIMIT_NOFILE, &few);
  const auto shortage = ClaimOpenFiles(needed, "a test needs");
  getrlimit(RLIMIT_NOFILE, &few);
  std::cerr << shortage.value_or("enough") << "; the soft limit is " << few.rlim_cur << std::endl;
  _exit(0);
}

TEST(ResourceLimits, TheSoftLimitOfOpenFilesIsRaisedWhereItIsTooLow) {
  const testing::ExitedWithCode well(0);
  EXPECT_EXIT(ClaimOfFewFiles(100), well, "^enough; the soft limit is 100\n");
  EXPECT_EXIT(ClaimOfFewFiles(101), well, "^enough; the soft limit is 4096\n");
  EXPECT_EXIT(ClaimOfFewFiles(4097), well,
              "^a process may open no more than 4096 files, and a test needs 4097: raise the hard "
              "limit .ulimit -Hn., as by nofile in /etc/security/limits.conf; the soft limit is "
              "4096\n");
}

TEST(ResourceLimits, OpenFilesAreCounted) {
  const uint64_t before = CountOpenFiles();
  const int copy = dup(STDERR_FILENO);
  EXPECT_EQ(CountOpenFiles(), before + 1);
  close(copy);
  EXPECT_EQ(CountOpenFiles(), before);
}

}  // namespace
}  // namespace poseidon
