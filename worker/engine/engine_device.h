// EngineDevice: the device that an engine computes on, as far as what the engine reads and tells
// has to do with it. Batches are made in pinned memory of the host and copied to the device in a
// stream of their own, so that neither the host nor what computes waits for a copy:
//
//   device.Copy(on_device, pinned, bytes, unused, copied);  // after `unused`, in the batches'
//   stream device.Await(copied);                                   // what is computed from now on
//   sees it
//
// "What is computed" is what the engine has been asked for: in the stream that its device computes
// in, or on the thread that calls it.
//
// Thread safety: WaitOnHost may be called by any thread, all else by the engine's.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "device/device.h"

namespace poseidon {

class EngineDevice {
 public:
  virtual ~EngineDevice() = default;

  // The GPU's number, if it is one.
  virtual std::optional<int> cuda_device() const = 0;

  // Both throw Error naming the size if there is not so much.
  virtual DeviceMemory AllocatePinned(size_t bytes) = 0;
  virtual DeviceMemory Allocate(size_t bytes) = 0;
  virtual std::unique_ptr<DeviceEvent> MakeEvent() = 0;

  // `moment` is when all that has been asked for so far is computed.
  virtual void RecordComputed(DeviceEvent& moment) = 0;
  // Copies from pinned memory after `after`, as it was last recorded; `copied` is when it is done.
  virtual void Copy(void* to, const void* from, size_t bytes, const DeviceEvent& after,
                    DeviceEvent& copied) = 0;
  // What is computed from now on comes after `moment`.
  virtual void Await(const DeviceEvent& moment) = 0;
  // Returns when `moment` has come, as it was last recorded, at once if it never was. Throws Error
  // if the device has failed.
  virtual void WaitOnHost(const DeviceEvent& moment) = 0;
};

}  // namespace poseidon
