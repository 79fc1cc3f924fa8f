// A GPU as what a replica computes on: its arithmetic is in the engine's stream, and whoever waits
// finds it done.
#include <thread>

#include "device/cuda/cuda_device.h"
#include "tests/gpu/on_device.h"
#include "worker/cuda_compute_device.h"

namespace poseidon {
namespace {

TEST(CudaComputeDevice, AddsUpPassesInItsStream) {
  const std::unique_ptr<ComputeDevice> device = MakeCudaComputeDevice(0);
  EXPECT_EQ(device->cuda_device(), 0);
  EXPECT_NE(device->factor_update(), nullptr);
  EXPECT_NE(device->packer(), nullptr);
  std::mt19937 random(1);
  for (const size_t size : kVectorSizes) {
    const std::vector<float> first = FloatsOfManySizes(size, random);
    const std::vector<float> second = FloatsOfManySizes(size, random);
    const OnDevice<float> sum(first), addend(second);
    device->AddInto(sum.span(), addend.span());
    device->Scale(sum.span(), 0.5F);
    std::vector<float> expected = first;
    for (size_t i = 0; i < size; ++i) expected[i] = (expected[i] + second[i]) * 0.5F;
    ExpectSameBits(sum.Values(), expected);
  }
}

TEST(CudaComputeDevice, WaitsForItsStream) {
  const std::unique_ptr<ComputeDevice> device = MakeCudaComputeDevice(0);
  bool ran = false, notified = false;
  device->Run([&] { ran = true; });
  EXPECT_TRUE(ran) << "work of engines is done at once";
  device->device().Notify(device->stream(), [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    notified = true;
  });
  device->Wait();
  EXPECT_TRUE(notified);
}

}  // namespace
}  // namespace poseidon
