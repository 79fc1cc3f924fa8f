// How fast gradients and parameters go between a GPU and pinned memory, against what the bus can
// do.
//
//   bench_gpu_copies
//
// As DeviceStaging does, each bucket is ordered behind an event of another stream, copied on the
// direction's stream, and its end an event that a thread waits for; so many buckets follow each
// other that they are 256 MiB. Rows are sizes of buckets, to the host, to the device, and both ways
// at once.
//
// The ceiling is one plain copy of 256 MiB between pinned memory and the device in the same
// direction, the median of as many repetitions; of both ways, the sum of the two. The aim is 0.9.
// Memory that is not pinned stands below, for comparison. GB/s (10^9).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "tests/bench/gpu_timing.h"

namespace poseidon {
namespace {

constexpr size_t kTotal = size_t{256} << 20U;
constexpr size_t kBuckets[] = {size_t{256} << 10U, size_t{2} << 20U, size_t{16} << 20U,
                               size_t{64} << 20U};

class Bench {
 public:
  Bench()
      : device_(MakeCudaDevice(0)),
        pinned_(device_->AllocatePinned(2 * kTotal)),
        memory_(device_->Allocate(2 * kTotal)),
        pageable_(kTotal),
        event_(device_->MakeEvent()) {
    CheckCuda(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking), "make a stream");
  }
  ~Bench() { cudaStreamDestroy(compute_); }

  void Run() {
    std::printf("%s\n", device_->name().c_str());
    const double out = Ceiling(CopyDirection::kToHost), in = Ceiling(CopyDirection::kToDevice);
    std::printf("one copy of 256 MiB: %.1f GB/s to the host, %.1f to the device\n", out / 1e9,
                in / 1e9);
    PrintHeading("GB/s, buckets of");
    for (const size_t bucket : kBuckets) {
      const std::string size = std::to_string(bucket >> 10U) + " KiB, ";
      Row(size + "to the host", bucket, {CopyDirection::kToHost}, out);
      Row(size + "to the device", bucket, {CopyDirection::kToDevice}, in);
      Row(size + "both", bucket, {CopyDirection::kToHost, CopyDirection::kToDevice}, out + in);
    }
    const auto stream = static_cast<cudaStream_t>(device_->copy_stream(CopyDirection::kToHost));
    const Timings timings = TimeInStream(
        stream, [&] { device_->Copy(stream, pageable_.data(), memory_.get(), kTotal); });
    PrintRow("not pinned, to the host", kTotal, timings, out);
  }

 private:
  // Each direction has its half of both memories.
  std::byte* Half(const DeviceMemory& memory, CopyDirection direction) const {
    return memory.get() + (direction == CopyDirection::kToHost ? 0 : kTotal);
  }

  void Copy(CopyDirection direction, size_t begin, size_t bytes) {
    std::byte* const host = Half(pinned_, direction) + begin;
    std::byte* const device = Half(memory_, direction) + begin;
    const bool out = direction == CopyDirection::kToHost;
    device_->Copy(device_->copy_stream(direction), out ? host : device, out ? device : host, bytes);
  }

  double Ceiling(CopyDirection direction) {
    const auto stream = static_cast<cudaStream_t>(device_->copy_stream(direction));
    return kTotal / TimeInStream(stream, [&] { Copy(direction, 0, kTotal); }).median();
  }

  void Row(const std::string& name, size_t bucket, const std::vector<CopyDirection>& directions,
           double ceiling) {
    Timings timings;
    std::vector<std::unique_ptr<DeviceEvent>> ends;
    for (size_t at = 0; at < kTotal * directions.size(); at += bucket) {
      ends.push_back(device_->MakeEvent());
    }
    for (int i = 0; i < kWarmUp + kRepetitions; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      size_t end = 0;
      for (size_t at = 0; at < kTotal; at += bucket) {
        for (const CopyDirection direction : directions) {
          device_->Record(*event_, compute_);
          device_->Wait(device_->copy_stream(direction), *event_);
          Copy(direction, at, bucket);
          device_->Record(*ends[end++], device_->copy_stream(direction));
        }
      }
      for (const auto& event : ends) device_->Await(*event);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
      if (i >= kWarmUp) timings.seconds.push_back(elapsed.count());
    }
    std::sort(timings.seconds.begin(), timings.seconds.end());
    PrintRow(name.c_str(), static_cast<double>(kTotal * directions.size()), timings, ceiling);
  }

  std::unique_ptr<Device> device_;
  DeviceMemory pinned_;
  DeviceMemory memory_;
  std::vector<std::byte> pageable_;
  std::unique_ptr<DeviceEvent> event_;
  cudaStream_t compute_ = nullptr;
};

}  // namespace
}  // namespace poseidon

int main() {
  try {
    poseidon::Bench().Run();
  } catch (const poseidon::Error& error) {
    std::fprintf(stderr, "bench_gpu_copies: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
