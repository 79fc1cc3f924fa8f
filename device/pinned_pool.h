// PinnedPool: all of a model's host buffers that a device copies from and to. Filled when the model
// is declared; freed as a whole.
//
// Pinning memory takes milliseconds a call and ends at pages, so small buffers share large blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"

namespace poseidon {

// One thread at a time. Its buffers belong to whoever asked for them, and live as long as the pool.
class PinnedPool {
 public:
  // Small against the models that need several, large against the time that a block costs.
  static constexpr size_t kBlockBytes = size_t{64} << 20U;

  // `device` must outlive the pool's last Allocate. A buffer larger than `block_bytes` has a block
  // of its own.
  explicit PinnedPool(Device& device, size_t block_bytes = kBlockBytes);

  // Zeros, aligned for any use. Throws Error if the machine can't pin so much.
  std::span<float> Allocate(int64_t floats);
  // Pinned, what is not handed out included.
  size_t bytes() const { return bytes_; }

 private:
  Device& device_;
  size_t block_bytes_;
  size_t bytes_ = 0;
  std::vector<DeviceMemory> blocks_;
  std::span<std::byte> rest_;  // of the newest block
};

}  // namespace poseidon
