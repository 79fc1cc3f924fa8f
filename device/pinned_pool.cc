#include "device/pinned_pool.h"

#include <algorithm>
#include <utility>

#include "core/alignment.h"

namespace poseidon {

AllocateBlock PinnedFor(Device& device) {
  return [&device](size_t bytes) { return device.AllocatePinned(bytes); };
}

PinnedPool::PinnedPool(AllocateBlock allocate, size_t block_bytes)
    : allocate_(std::move(allocate)), block_bytes_(block_bytes) {}

std::span<float> PinnedPool::Allocate(int64_t floats) {
  const size_t size = static_cast<size_t>(floats) * sizeof(float);
  const size_t rounded = (size + kVectorAlignment - 1) / kVectorAlignment * kVectorAlignment;
  if (rounded > rest_.size()) {
    const size_t bytes = std::max(rounded, block_bytes_);
    DeviceMemory made = allocate_(bytes);
    if (made == nullptr) return {};
    blocks_.push_back(std::move(made));
    bytes_ += bytes;
    // The larger of the two rests is of more use.
    const std::span<std::byte> block(blocks_.back().get(), bytes);
    if (bytes - rounded < rest_.size()) {
      return {reinterpret_cast<float*>(block.data()), static_cast<size_t>(floats)};
    }
    rest_ = block;
  }
  float* const begin = reinterpret_cast<float*>(rest_.data());
  rest_ = rest_.subspan(rounded);
  return {begin, static_cast<size_t>(floats)};
}

}  // namespace poseidon
