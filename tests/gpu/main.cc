// Where no GPU can be used the tests say so and exit with 77, which ctest counts as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "device/cuda/cuda_device.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const poseidon::CudaDevices devices = poseidon::FindCudaDevices();
  if (devices.count == 0) {
    std::printf("skipped: no GPU can be used: %s\n", devices.why_none.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
