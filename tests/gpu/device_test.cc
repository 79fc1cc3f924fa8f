// CudaDevice: copies against plain ones, and their order behind events.
#include "device/device.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <optional>
#include <thread>

#include "core/error.h"
#include "core/random.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/current_device.h"
#include "device/cuda/sum.h"
#include "device/pinned_pool.h"
#include "tests/gpu/on_device.h"

namespace poseidon {
namespace {

constexpr std::chrono::seconds kPatience(60);

std::span<float> AsFloats(const DeviceMemory& memory, size_t floats) {
  return {reinterpret_cast<float*>(memory.get()), floats};
}

void Await(Device& device, DeviceStream stream) {
  std::promise<void> done;
  device.Notify(stream, [&] { done.set_value(); });
  ASSERT_EQ(done.get_future().wait_for(kPatience), std::future_status::ready);
  device.Check();
}

TEST(CudaDevice, RunsThisBuildsKernels) {
  const CurrentCudaDevice current(0);
  EXPECT_EQ(cuda::WhyNoKernelRuns(), std::nullopt);
}

TEST(CudaDevice, CopiesWhatAPlainCopyDoes) {
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  PinnedPool pool(PinnedFor(*device), 1 << 20);
  std::mt19937 random(1);
  for (const size_t size : kVectorSizes) {
    const std::vector<float> floats = FloatsOfManySizes(size, random);
    const std::span<float> host = pool.Allocate(static_cast<int64_t>(size));
    const OnDevice from(floats), to(std::vector<float>(size, -1));
    const DeviceStream out = device->copy_stream(CopyDirection::kToHost);
    device->Copy(out, host.data(), from.span().data(), host.size_bytes());
    Await(*device, out);
    EXPECT_EQ(std::vector<float>(host.begin(), host.end()), floats);
    const DeviceStream in = device->copy_stream(CopyDirection::kToDevice);
    device->Copy(in, to.span().data(), host.data(), host.size_bytes());
    Await(*device, in);
    EXPECT_EQ(to.Values(), floats);
  }
}

// Rounds of: values to the device, a stream of work on them, back to the host; the three are
// ordered by events only.
TEST(CudaDevice, EventsOrderCopiesBehindAnotherStreamsWork) {
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  cudaStream_t compute = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking), "make a stream");
  constexpr size_t kFloats = 1 << 22;
  constexpr int kAdditions = 50;  // long enough that a copy without order would come too soon
  const DeviceMemory pinned = device->AllocatePinned(kFloats * sizeof(float));
  const DeviceMemory memory = device->Allocate(2 * kFloats * sizeof(float));
  const std::span<float> host = AsFloats(pinned, kFloats);
  const std::span<float> values = AsFloats(memory, 2 * kFloats).first(kFloats);
  const std::span<float> ones = AsFloats(memory, 2 * kFloats).last(kFloats);
  const std::vector<float> one(kFloats, 1);
  CheckCuda(cudaMemcpy(ones.data(), one.data(), ones.size_bytes(), cudaMemcpyHostToDevice), "copy");
  const DeviceStream in = device->copy_stream(CopyDirection::kToDevice);
  const DeviceStream out = device->copy_stream(CopyDirection::kToHost);
  const auto arrived = device->MakeEvent(), computed = device->MakeEvent();
  for (int round = 0; round < 10; ++round) {
    std::fill(host.begin(), host.end(), static_cast<float>(round));
    device->Copy(in, values.data(), host.data(), host.size_bytes());
    device->Record(*arrived, in);
    device->Wait(compute, *arrived);
    for (int i = 0; i < kAdditions; ++i) cuda::AddInto(values, ones, compute);
    device->Record(*computed, compute);
    device->Wait(out, *computed);
    device->Copy(out, host.data(), values.data(), host.size_bytes());
    ASSERT_NO_FATAL_FAILURE(Await(*device, out));
    ASSERT_EQ(host.front(), round + kAdditions);
    ASSERT_EQ(host.back(), round + kAdditions);
  }
  cudaStreamDestroy(compute);
}

// Work that no GPU does in less than `milliseconds`.
void KeepBusy(cudaStream_t stream, int milliseconds) {
  const auto sleep = [](void* context) {
    std::this_thread::sleep_for(std::chrono::milliseconds(reinterpret_cast<intptr_t>(context)));
  };
  CheckCuda(cudaLaunchHostFunc(stream, sleep, reinterpret_cast<void*>(intptr_t{milliseconds})),
            "call back");
}

TEST(CudaDevice, TellsTheTimeBetweenEventsThatHaveCome) {
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  const DeviceStream stream = device->update_stream();
  const auto begin = device->MakeTimedEvent(), end = device->MakeTimedEvent();
  for (const int milliseconds : {100, 20}) {  // events are used again
    device->Record(*begin, stream);
    KeepBusy(static_cast<cudaStream_t>(stream), milliseconds);
    device->Record(*end, stream);
    EXPECT_FALSE(device->Elapsed(*begin, *end));
    ASSERT_NO_FATAL_FAILURE(Await(*device, stream));
    const std::optional<Duration> elapsed = device->Elapsed(*begin, *end);
    ASSERT_TRUE(elapsed);
    EXPECT_GE(*elapsed, std::chrono::milliseconds(milliseconds - 1));
    EXPECT_LT(*elapsed, std::chrono::milliseconds(milliseconds + 50));
  }
}

// CUDA keeps "not ready" as a thread's last error, for which the next launch would be blamed.
TEST(CudaDevice, AskingABusyOneLeavesNoErrorBehind) {
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  const DeviceStream stream = device->update_stream();
  const OnDevice<float> floats(std::vector<float>(100, 2));
  const auto begin = device->MakeTimedEvent(), end = device->MakeTimedEvent();
  device->Record(*begin, stream);
  KeepBusy(static_cast<cudaStream_t>(stream), 100);
  device->Record(*end, stream);
  device->Check();
  EXPECT_NO_THROW(cuda::Scale(floats.span(), 2, kDefaultStream));
  EXPECT_FALSE(device->Elapsed(*begin, *end));
  EXPECT_NO_THROW(cuda::Scale(floats.span(), 2, kDefaultStream));
  ASSERT_NO_FATAL_FAILURE(Await(*device, stream));
  EXPECT_EQ(floats.Values(), std::vector<float>(100, 8));
}

TEST(CudaDevice, OneThatIsNotThereIsAConfigError) {
  const int count = FindCudaDevices().count;
  EXPECT_GT(count, 0);
  EXPECT_THROW(MakeCudaDevice(count), ConfigError);
  EXPECT_THROW(MakeCudaDevice(-1), ConfigError);
}

}  // namespace
}  // namespace poseidon
