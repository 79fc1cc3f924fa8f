// A CUDA device that fails: who waits is told, soon, and what is let go afterwards keeps still.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>

#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/sum.h"
#include "device/device.h"

namespace poseidon {
namespace {

using Clock = std::chrono::steady_clock;

// A fault is told within milliseconds; a device that is told of none would keep its waiters for
// ever.
constexpr std::chrono::seconds kSoon(10);
constexpr int kTold = 3;
constexpr int kNotTold = 4;

bool Tells(const auto& wait) {
  try {
    wait();
    return false;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return true;
  }
}

// Ends the process: a device that has failed is lost to all of it.
[[noreturn]] void Fail() {
  bool told = false;
  const Clock::time_point begin = Clock::now();
  {
    const std::unique_ptr<Device> device = MakeCudaDevice(0);
    const DeviceMemory pinned = device->AllocatePinned(1 << 20);
    const DeviceMemory memory = device->Allocate(1 << 20);
    const std::unique_ptr<DeviceEvent> added = device->MakeEvent();
    // No memory of the device's is there.
    const std::span<float> nowhere(reinterpret_cast<float*>(1 << 12), 256);
    const std::span<float> there(reinterpret_cast<float*>(memory.get()), 256);
    cuda::AddInto(nowhere, there, nullptr);
    device->Record(*added, nullptr);
    told = Tells([&] { device->Await(*added); });
    told = Tells([&] { device->Check(); }) && told;
    told = Tells([&] { device->Allocate(1 << 20); }) && told;
  }
  std::exit(told && Clock::now() - begin < kSoon ? kTold : kNotTold);
}

TEST(CudaDeviceFault, IsToldToWhoWaits) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // CUDA can't be used in a fork
  EXPECT_EXIT(Fail(), testing::ExitedWithCode(kTold),
              "cuda device 0 \\(.*\\) has failed: an illegal memory access");
}

}  // namespace
}  // namespace poseidon
