// DeviceOfEngine: a Device (device/device.h) as the engine that computes on it sees it.
//
// Thread safety: as EngineDevice.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "device/device.h"
#include "worker/engine/engine_device.h"

namespace poseidon {

class DeviceOfEngine : public EngineDevice {
 public:
  // Where what the engine is asked for is computed: in a stream of the device's, so that its calls
  // return before, or on the thread that calls it.
  enum class Computes { kInStream, kOnThread };

  // `stream` matters if it computes there. The device outlives this.
  DeviceOfEngine(Device& device, Computes computes, DeviceStream stream,
                 std::optional<int> cuda_device);

  std::optional<int> cuda_device() const override { return cuda_device_; }
  DeviceMemory AllocatePinned(size_t bytes) override { return device_.AllocatePinned(bytes); }
  DeviceMemory Allocate(size_t bytes) override { return device_.Allocate(bytes); }
  std::unique_ptr<DeviceEvent> MakeEvent() override { return device_.MakeEvent(); }
  void RecordComputed(DeviceEvent& moment) override;
  void Copy(void* to, const void* from, size_t bytes, const DeviceEvent& after,
            DeviceEvent& copied) override;
  void Await(const DeviceEvent& moment) override;
  void WaitOnHost(const DeviceEvent& moment) override { device_.Await(moment); }

 private:
  Device& device_;
  Computes computes_;
  DeviceStream stream_;
  std::optional<int> cuda_device_;
};

}  // namespace poseidon
