#include "core/process/resource_limits.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace poseidon
