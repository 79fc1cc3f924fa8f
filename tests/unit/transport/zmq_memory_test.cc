// What ZmqRuntime does about the memory of a process.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/transport/zmq_testing.h"

namespace poseidon {
namespace {

// Of this process, without a page that is read from a file.
int64_t PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// As many blocks as frames may be on their way.
void AllocateAndFree(size_t block_bytes) {
  std::vector<std::unique_ptr<std::string>> blocks(16);
  for (auto& block : blocks) block = std::make_unique<std::string>(block_bytes, 'x');
}

// 0 if blocks that were freed are there for the next, as an exit code.
int WhetherFreedMemoryStays() {
  for (const size_t size : {100 << 10, 300 << 10, 1 << 20, 3 << 20}) {
    AllocateAndFree(size);
    const int64_t before = PageFaults();
    AllocateAndFree(size);
    // One page of 4 KiB of each block at most.
    if (PageFaults() - before > 16) return 1;
  }
  return 0;
}

// ZeroMQ receives each frame into a block of its own. Were it given back to the kernel when it is
// freed, each would cost a page fault for every 4 KiB.
TEST(ZmqMemory, StaysWithTheProcessWhenFramesAreFreed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers have an allocator of their own";
#endif
  // In a process of its own: what earlier tests have freed has changed glibc's thresholds.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const auto nodes = MakeNodes(1, Lanes(1));
        std::exit(WhetherFreedMemoryStays());
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace poseidon
