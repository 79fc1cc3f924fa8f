// BatchMemory: where a data layer's batches are made and where they are read: two places of each,
// so that one is filled while another is computed with.
//
//   memory.AwaitHost(slot);           // the host's part may be written
//   Make(memory.host(slot, 0));
//   memory.Send(slot);                // on its way to the device
//   memory.Use(slot);                 // what is computed from now on
//   Compute(memory.values(slot, 0));  // reads this
//
// Without a device of its own an engine reads what the host has written: then both are the same
// memory, and the calls between them do nothing.
//
// Thread safety: AwaitHost and host may be called by one thread and all else by another, the
// engine's, while the two agree on whose a slot is.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "worker/engine/engine_device.h"

namespace poseidon {

class BatchMemory {
 public:
  static constexpr int kSlots = 2;

  // For tops of so many floats. The device, which may be null, outlives this. Throws Error if there
  // is not so much memory.
  BatchMemory(EngineDevice* device, const std::vector<size_t>& floats);
  // Waits until nothing is on its way.
  ~BatchMemory();
  BatchMemory(const BatchMemory&) = delete;
  BatchMemory& operator=(const BatchMemory&) = delete;

  std::span<float> host(int slot, size_t top) const;
  // Waits until what was last sent from there has arrived. Throws Error if the device has failed.
  void AwaitHost(int slot);
  // When what is computed no longer reads the slot, copies it to the device, in a stream that
  // nothing else waits for.
  void Send(int slot);
  void Use(int slot);
  std::span<const float> values(int slot, size_t top) const;

 private:
  struct Slot {
    std::vector<DeviceMemory> host;    // by top
    std::vector<DeviceMemory> device;  // by top; none without a device
    std::unique_ptr<DeviceEvent> unused;
    std::unique_ptr<DeviceEvent> sent;
  };

  void AllocateOnDevice(Slot& slot);

  EngineDevice* device_;
  std::vector<size_t> floats_;
  std::array<Slot, kSlots> slots_;
  int used_ = -1;  // the slot of the last Use
};

}  // namespace poseidon
