// What control groups allow, in trees that are made up; and what pins a thread.
#include "core/process/allowance.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <limits>
#include <string>
#include <thread>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

class AllowanceTest : public testing::Test {
 protected:
  GroupAllowance Read() const { return ReadGroupAllowance(directory_.path()); }
  void Write(const std::string& path, const std::string& text) { directory_.Write(path, text); }

  TemporaryDirectory directory_;
};

TEST_F(AllowanceTest, WithoutGroupsOrLimitsThereIsNone) {
  EXPECT_EQ(Read().cores, std::numeric_limits<double>::infinity());
  EXPECT_EQ(Read().memory, kNoLimit);
  Write("proc/self/cgroup", "0::/job\n");
  Write("sys/fs/cgroup/job/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/job/memory.max", "max\n");
  Write("sys/fs/cgroup/job/memory.current", "1000\n");
  EXPECT_EQ(Read().cores, std::numeric_limits<double>::infinity());
  EXPECT_EQ(Read().memory, kNoLimit);
}

TEST_F(AllowanceTest, TheLeastOfTheOwnGroupAndThoseAboveIsAllowed) {
  Write("proc/self/cgroup", "0::/pods/job\n");
  Write("sys/fs/cgroup/pods/cpu.max", "250000 100000\n");
  Write("sys/fs/cgroup/pods/job/cpu.max", "800000 100000\n");
  Write("sys/fs/cgroup/pods/memory.max", "9000\n");
  Write("sys/fs/cgroup/pods/memory.current", "1000\n");
  Write("sys/fs/cgroup/pods/job/memory.max", "5000\n");
  Write("sys/fs/cgroup/pods/job/memory.current", "3000\n");
  Write("sys/fs/cgroup/pods/job/memory.stat", "anon 2000\ninactive_file 600\nactive_file 400\n");
  EXPECT_EQ(Read().cores, 2.5);
  EXPECT_EQ(Read().memory, 5000 - (3000 - 600));
  Write("sys/fs/cgroup/pods/job/memory.max", "100\n");
  EXPECT_EQ(Read().memory, 0);
}

TEST_F(AllowanceTest, OfVersion1EachControllerHasGroupsOfItsOwn) {
  Write("proc/self/cgroup",
        "4:memory:/slurm/job\n3:cpu,cpuacct:/slurm\n1:name=systemd:/user.slice\n0::/\n");
  Write("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_quota_us", "400000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/slurm/cpu.cfs_period_us", "100000\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  Write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  Write("sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "5000\n");
  Write("sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "3000\n");
  Write("sys/fs/cgroup/memory/slurm/job/memory.stat", "inactive_file 1\ntotal_inactive_file 50\n");
  Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "7000\n");
  EXPECT_EQ(Read().cores, 4);
  EXPECT_EQ(Read().memory, 5000 - (3000 - 50));
}

// Docker with version 1, where the path is the machine's.
TEST_F(AllowanceTest, AContainersGroupIsWhereItSeesTheRoot) {
  Write("proc/self/cgroup", "3:cpu:/docker/4711\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n");
  Write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Read().cores, 0.5);
}

TEST_F(AllowanceTest, ThreadsMayBeStartedUpToTheLimitOfAGroup) {
  EXPECT_EQ(Read().threads, kNoLimit);
  Write("proc/self/cgroup", "8:pids:/docker/4711\n0::/pods/job\n");
  Write("sys/fs/cgroup/pods/job/pids.max", "max\n");
  Write("sys/fs/cgroup/pods/job/pids.current", "7\n");
  EXPECT_EQ(Read().threads, kNoLimit);
  Write("sys/fs/cgroup/pods/pids.max", "100\n");
  Write("sys/fs/cgroup/pods/pids.current", "30\n");
  EXPECT_EQ(Read().threads, 100 - 30);
  Write("sys/fs/cgroup/pids/pids.max", "50\n");
  Write("sys/fs/cgroup/pids/pids.current", "8\n");
  EXPECT_EQ(Read().threads, 50 - 8);
  Write("sys/fs/cgroup/pids/pids.current", "51\n");
  EXPECT_EQ(Read().threads, 0);
}

TEST(UsableCores, AreThoseThatTheThreadIsPinnedTo) {
  EXPECT_GE(UsableCores(), 1);
  int cores = 0;
  std::thread([&cores] {
    cpu_set_t all;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    cores = UsableCores();
  }).join();
  EXPECT_EQ(cores, 1);
}

}  // namespace
}  // namespace poseidon
