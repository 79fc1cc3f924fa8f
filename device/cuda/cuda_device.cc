#include "device/cuda/cuda_device.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "device/cuda/check.h"
#include "device/cuda/current_device.h"
#include "device/cuda/sum.h"

namespace poseidon {
namespace {

// Of the device that is current. Its last owner may be on another device, and behind a fault, which
// the training has told of: what a deleter's calls answer is not looked at.
struct CudaEvent : DeviceEvent {
  CudaEvent(int on, unsigned flags) : device(on) {
    CheckCuda(cudaEventCreateWithFlags(&event, flags), "make an event");
  }
  ~CudaEvent() override {
    const CurrentCudaDevice current(device, std::nothrow);
    cudaEventDestroy(event);
  }
  int device;
  cudaEvent_t event = nullptr;
};

// The last owner of memory may be a thread of ZeroMQ's, which has no device.
DeviceMemory Owned(int index, void* memory, cudaError_t (*free)(void*)) {
  return {static_cast<std::byte*>(memory), [index, free](std::byte* freed) {
            const CurrentCudaDevice current(index, std::nothrow);
            free(freed);
          }};
}

cudaEvent_t Of(const DeviceEvent& event) { return static_cast<const CudaEvent&>(event).event; }
cudaStream_t Of(DeviceStream stream) { return static_cast<cudaStream_t>(stream); }

// Whether it says that there is still work to do: no error, but CUDA keeps it as this thread's last
// one, and the next kernel that is launched would be blamed.
bool IsNotReady(cudaError_t error) {
  if (error != cudaErrorNotReady) return false;
  cudaGetLastError();
  return true;
}

std::string Mebibytes(size_t bytes) { return std::to_string(bytes >> 20U) + " MiB"; }

// The first kernel would come in the first update, when the job has begun. The device is current.
void CheckKernels(const cudaDeviceProp& device, const std::string& name) {
  const std::optional<std::string> why = cuda::WhyNoKernelRuns();
  if (!why) return;
  const std::string capability = std::to_string(device.major) + "." + std::to_string(device.minor);
  throw ConfigError("this build's kernels can't run on " + name + ", of compute capability " +
                    capability + ": " + *why +
                    "; build with -DPOSEIDON_CUDA_ARCHITECTURES=" + std::to_string(device.major) +
                    std::to_string(device.minor) + ", or train on the CPU");
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    cudaDeviceProp properties;
    CheckCuda(cudaGetDeviceProperties(&properties, index), "describe device");
    name_ = "cuda device " + std::to_string(index) + " (" + properties.name + ")";
    const CurrentCudaDevice current(index);
    CheckKernels(properties, name_);
    int least = 0, greatest = 0;
    CheckCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "describe device");
    for (cudaStream_t& stream : streams_) {
      // Independent of the default stream, in which a program's own work may be. What is packed,
      // reduced and updated is waited for by the network, or by the next forward pass: its blocks
      // go before those of the backward pass that still wait for a multiprocessor.
      CheckCuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
                "make a stream");
    }
  }
  ~CudaDevice() override {
    const CurrentCudaDevice current(index_, std::nothrow);
    for (cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }

  const std::string& name() const override { return name_; }

  DeviceStream copy_stream(CopyDirection direction) const override {
    return streams_.at(static_cast<size_t>(direction));
  }
  DeviceStream packing_stream() const override { return streams_[kPacking]; }
  DeviceStream update_stream() const override { return streams_[kUpdates]; }
  DeviceStream batch_stream() const override { return streams_[kBatches]; }

  // Without time stamps, which would make the streams that wait for it slower. A thread that waits
  // for it sleeps, and leaves its core to the training thread.
  std::unique_ptr<DeviceEvent> MakeEvent() override {
    const CurrentCudaDevice current(index_);
    return std::make_unique<CudaEvent>(index_, cudaEventDisableTiming | cudaEventBlockingSync);
  }

  std::unique_ptr<DeviceEvent> MakeTimedEvent() override {
    const CurrentCudaDevice current(index_);
    return std::make_unique<CudaEvent>(index_, cudaEventDefault);
  }

  void Record(DeviceEvent& event, DeviceStream stream) override {
    const CurrentCudaDevice current(index_);  // whose default stream a null one is
    CheckCuda(cudaEventRecord(Of(event), Of(stream)), "record an event on " + name_);
  }

  void Wait(DeviceStream stream, const DeviceEvent& event) override {
    const CurrentCudaDevice current(index_);
    CheckCuda(cudaStreamWaitEvent(Of(stream), Of(event)), "wait for an event on " + name_);
  }

  void Await(const DeviceEvent& event) override {
    const CurrentCudaDevice current(index_);  // or the thread would get a context on GPU 0
    CheckCuda(cudaEventSynchronize(Of(event)), "go on: " + name_ + " has failed");
  }

  bool HasCome(const DeviceEvent& event) override {
    const CurrentCudaDevice current(index_);
    const cudaError_t error = cudaEventQuery(Of(event));
    if (error != cudaSuccess) cudaGetLastError();  // or this thread's next launch would be blamed
    return error == cudaSuccess;
  }

  std::optional<Duration> Elapsed(const DeviceEvent& begin, const DeviceEvent& end) override {
    const CurrentCudaDevice current(index_);
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, Of(begin), Of(end));
    if (IsNotReady(error)) return std::nullopt;
    CheckCuda(error, "measure time on " + name_);
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<float, std::milli>(milliseconds));
  }

  void Copy(DeviceStream stream, void* to, const void* from, size_t bytes) override {
    const CurrentCudaDevice current(index_);
    CheckCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, Of(stream)),
              "copy " + std::to_string(bytes) + " bytes on " + name_);
  }

  void Notify(DeviceStream stream, std::function<void()> function) override {
    const CurrentCudaDevice current(index_);
    auto owned = std::make_unique<std::function<void()>>(std::move(function));
    // Of a device that fails it is never called, and so never freed.
    const auto call = [](void* context) {
      const std::unique_ptr<std::function<void()>> owner(
          static_cast<std::function<void()>*>(context));
      (*owner)();
    };
    CheckCuda(cudaLaunchHostFunc(Of(stream), call, owned.get()),
              "call back from a stream of " + name_);
    static_cast<void>(owned.release());
  }

  DeviceMemory AllocatePinned(size_t bytes) override {
    const CurrentCudaDevice current(index_);
    void* memory = nullptr;
    // Portable: pinned for the worker's other devices, too.
    CheckCuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable),
              "pin " + Mebibytes(bytes) + " of the host's memory");
    DeviceMemory owner = Owned(index_, memory, cudaFreeHost);
    std::fill_n(owner.get(), bytes, std::byte{0});
    return owner;
  }

  DeviceMemory Allocate(size_t bytes) override {
    const CurrentCudaDevice current(index_);
    void* memory = nullptr;
    CheckCuda(cudaMalloc(&memory, bytes), "find " + Mebibytes(bytes) + " of memory on " + name_);
    DeviceMemory owner = Owned(index_, memory, cudaFree);
    CheckCuda(cudaMemset(memory, 0, bytes), "clear memory of " + name_);
    // That is work in the default stream, for which the others do not wait.
    CheckCuda(cudaStreamSynchronize(nullptr), "clear memory of " + name_);
    return owner;
  }

  void Check() const override {
    // A fault anywhere in the process's work on a device is told by every later call.
    for (cudaStream_t stream : streams_) {
      const cudaError_t error = cudaStreamQuery(stream);
      if (IsNotReady(error) || error == cudaSuccess) continue;
      throw Error(ExitCode::kFailure, name_ + " has failed: " + cudaGetErrorString(error));
    }
  }

 private:
  int index_;
  std::string name_;
  static constexpr size_t kPacking = 2;
  static constexpr size_t kUpdates = 3;
  static constexpr size_t kBatches = 4;
  std::array<cudaStream_t, 5> streams_{};  // copies by direction, then those
};

}  // namespace

CudaDevices FindCudaDevices() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
    return {.count = 0, .why_none = "this machine has no NVIDIA driver"};
  }
  CudaDevices devices;
  const cudaError_t error = cudaGetDeviceCount(&devices.count);
  if (error != cudaSuccess) devices = {.count = 0, .why_none = cudaGetErrorString(error)};
  if (error == cudaSuccess && devices.count == 0) devices.why_none = "this machine has no GPU";
  return devices;
}

int CudaDeviceOf(const void* memory) {
  cudaPointerAttributes attributes;
  CheckCuda(cudaPointerGetAttributes(&attributes, memory), "say whose memory it is");
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
    throw Error(ExitCode::kFailure, "the memory is no GPU's");
  }
  return attributes.device;
}

std::unique_ptr<Device> MakeCudaDevice(int index) {
  const CudaDevices devices = FindCudaDevices();
  if (devices.count == 0) {
    throw ConfigError("training.device is cuda, but no GPU can be used: " + devices.why_none +
                      "; run on a machine with a GPU, or train on the CPU");
  }
  if (index < 0 || index >= devices.count) {
    throw ConfigError("training.device is cuda, device " + std::to_string(index) +
                      ", but this machine has " + std::to_string(devices.count) +
                      ", counted from 0");
  }
  return std::make_unique<CudaDevice>(index);
}

}  // namespace poseidon
