// PinnedPool: all of a model's host buffers that a device copies from and to. Filled when the model
// is declared; freed as a whole.
//
// Pinning memory takes milliseconds a call and ends at pages, so small buffers share large blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "device/device.h"

namespace poseidon {

// Makes a block of that many zeros, aligned for any use; null: it makes none. Any thread.
using AllocateBlock = std::function<DeviceMemory(size_t bytes)>;

// Pinned for the copies of `device`, which must outlive the last call.
AllocateBlock PinnedFor(Device& device);

// One thread at a time. Its buffers belong to whoever asked for them, and live as long as the pool.
class PinnedPool {
 public:
  // Small against the models that need several, large against the time that a block costs.
  static constexpr size_t kBlockBytes = size_t{64} << 20U;

  // A buffer larger than `block_bytes` has a block of its own.
  explicit PinnedPool(AllocateBlock allocate, size_t block_bytes = kBlockBytes);

  // Zeros, aligned for any use; nothing where no block was made. Throws what `allocate` throws.
  std::span<float> Allocate(int64_t floats);
  // Pinned, what is not handed out included.
  size_t bytes() const { return bytes_; }

 private:
  AllocateBlock allocate_;
  size_t block_bytes_;
  size_t bytes_ = 0;
  std::vector<DeviceMemory> blocks_;
  std::span<std::byte> rest_;  // of the newest block
};

}  // namespace poseidon
