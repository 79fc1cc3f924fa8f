// What holds on machines without a GPU: programs start, and say so only if one is asked for.
#include "device/cuda/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace poseidon {
namespace {

TEST(CudaDevices, AreThereOrThereIsAReason) {
  const CudaDevices devices = FindCudaDevices();
  EXPECT_EQ(devices.count == 0, !devices.why_none.empty()) << devices.why_none;
}

TEST(CudaDevices, OneThatIsNotThereIsAConfigErrorThatSaysWhy) {
  const CudaDevices devices = FindCudaDevices();
  try {
    MakeCudaDevice(devices.count);
    ADD_FAILURE() << "there is a device more than were found";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::StartsWith("training.device is cuda, "));
    EXPECT_THAT(error.what(),
                testing::HasSubstr(devices.count == 0
                                       ? devices.why_none
                                       : "this machine has " + std::to_string(devices.count)));
  }
}

}  // namespace
}  // namespace poseidon
