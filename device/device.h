// Device: where a training program's net lives, as far as the client library has to do with it: it
// copies between the device's memory and the host's, in order, without stopping the program's own
// work. CudaDevice (device/cuda/cuda_device.h) is a GPU; HostDevice has threads for streams, so
// that what is built on devices is tested everywhere.
//
// A stream is work in order; events order streams among each other. Each device has two streams of
// its own for copies, one a direction, so that both directions of its bus are used at once, one for
// packing gradients with error feedback and one for updates of parameters, which copies of other
// layers need not wait for, and one for copies of batches, so that neither they nor parameters wait
// for the other. The others are the program's ("compute"). Nothing here but Await and Allocate
// waits on the host for a stream or the device that has not failed.
//
// Thread safety: any thread may call any function. Those of a stream take effect in the order of
// the calls.
//
// Errors: a call that is refused throws Error. What fails later, in a stream, makes the whole
// device fail: from then on nothing in its streams is done and no function is called back, and
// Check() throws. That is CUDA's behavior, and HostDevice's, too.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/time.h"

namespace poseidon {

// A moment in a stream, used again and again. Made by Device::MakeEvent; may be waited for by the
// streams of other devices of the same kind.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
};

// A cudaStream_t, or one of HostDevice's. Null: CUDA's default stream.
using DeviceStream = void*;

enum class CopyDirection { kToHost, kToDevice };

// Freed with the last copy of the pointer, which may outlive the device.
using DeviceMemory = std::shared_ptr<std::byte>;

class Device {
 public:
  virtual ~Device() = default;

  // For messages: "cuda device 0 (NVIDIA H200)".
  virtual const std::string& name() const = 0;
  virtual DeviceStream copy_stream(CopyDirection direction) const = 0;
  // Before copies to the host.
  virtual DeviceStream packing_stream() const = 0;
  virtual DeviceStream update_stream() const = 0;
  // For copies of batches, which nobody waits for but who computes with them.
  virtual DeviceStream batch_stream() const = 0;

  virtual std::unique_ptr<DeviceEvent> MakeEvent() = 0;
  // An event that Elapsed takes, too.
  virtual std::unique_ptr<DeviceEvent> MakeTimedEvent() = 0;
  // The event is now the moment when all that is in the stream will be done.
  virtual void Record(DeviceEvent& event, DeviceStream stream) = 0;
  // What is put in the stream from now on is done after the event as it was last recorded; without
  // effect if it never was.
  virtual void Wait(DeviceStream stream, const DeviceEvent& event) = 0;
  // Blocks this thread, which sleeps, until the moment that was recorded last has come. Throws
  // Error if the device fails.
  virtual void Await(const DeviceEvent& event) = 0;
  // Whether it has come; not if the device has failed before.
  virtual bool HasCome(const DeviceEvent& event) = 0;
  // From one event of a stream to another behind it, as they were last recorded; none before both
  // moments have come.
  virtual std::optional<Duration> Elapsed(const DeviceEvent& begin, const DeviceEvent& end) = 0;

  // Between any two of host and device memory. Asynchronous only if the host's is pinned.
  virtual void Copy(DeviceStream stream, void* to, const void* from, size_t bytes) = 0;
  // Calls `function` on a thread of the device's when all that is in the stream is done. It must be
  // quick, must not throw, and must not call the device.
  virtual void Notify(DeviceStream stream, std::function<void()> function) = 0;

  // Host memory that copies can be asynchronous with, and device memory for programs that have none
  // of their own. Aligned for any use, filled with 0. Throw Error naming the size if there is not
  // so much.
  virtual DeviceMemory AllocatePinned(size_t bytes) = 0;
  virtual DeviceMemory Allocate(size_t bytes) = 0;

  // Throws Error with the reason if the device has failed. May first wait for what its streams are
  // in the middle of: once this has thrown, nobody uses memory that they were given.
  virtual void Check() const = 0;
};

}  // namespace poseidon
