#include "tests/simulation/recovery/slow_seeds.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>

#include <algorithm>

DEFINE_uint32(times, 1, "Slow cases try so many times as many seeds.");

namespace poseidon {

uint64_t SlowSeeds(uint64_t usual) { return usual * std::max(1U, FLAGS_times); }

}  // namespace poseidon

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return RUN_ALL_TESTS();
}
