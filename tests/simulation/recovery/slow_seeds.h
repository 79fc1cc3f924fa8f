// How many seeds slow cases try, which is up to whoever runs them:
//
//   build/tests/recovery_simulation_test --gtest_filter='BackupTest.Slow*' --times=20
#pragma once

#include <cstdint>

namespace poseidon {

// `usual`, what takes a minute or so, as many times as `--times` says.
uint64_t SlowSeeds(uint64_t usual);

}  // namespace poseidon
