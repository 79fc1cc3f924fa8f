#include "worker/engine/kept_statistics.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

namespace poseidon {

KeptStatistics::KeptStatistics(std::vector<std::span<float>> statistics, ComputeDevice* device)
    : statistics_(std::move(statistics)), device_(device) {
  for (const std::span<float> layer : statistics_) floats_ += layer.size();
  if (floats_ == 0) return;
  for (Kept& kept : kept_) kept.memory = Allocate();
  moved_ = Allocate();
}

DeviceMemory KeptStatistics::Allocate() const {
  const size_t bytes = floats_ * sizeof(float);
  if (device_ != nullptr) return device_->device().AllocatePinned(bytes);
  return {new std::byte[bytes], std::default_delete<std::byte[]>()};
}

void KeptStatistics::Move(void* to, const void* from, size_t bytes) {
  if (device_ == nullptr) {
    std::memcpy(to, from, bytes);
  } else {
    device_->device().Copy(device_->stream(), to, from, bytes);
  }
}

void KeptStatistics::CopyTo(const DeviceMemory& memory) {
  if (device_ != nullptr) device_->AwaitLaunches();
  std::byte* to = memory.get();
  for (const std::span<float> layer : statistics_) {
    Move(to, layer.data(), layer.size_bytes());
    to += layer.size_bytes();
  }
}

void KeptStatistics::CopyFrom(const DeviceMemory& memory) {
  if (device_ != nullptr) device_->AwaitLaunches();
  const std::byte* from = memory.get();
  for (const std::span<float> layer : statistics_) {
    Move(layer.data(), from, layer.size_bytes());
    from += layer.size_bytes();
  }
}

std::vector<float> KeptStatistics::Copy() {
  std::vector<float> all(floats_);
  if (floats_ == 0) return all;
  CopyTo(moved_);
  if (device_ != nullptr) device_->Wait();
  std::memcpy(all.data(), moved_.get(), floats_ * sizeof(float));
  return all;
}

void KeptStatistics::Set(std::span<const float> statistics) {
  CHECK_EQ(statistics.size(), floats_);
  if (floats_ == 0) return;
  std::memcpy(moved_.get(), statistics.data(), statistics.size_bytes());
  CopyFrom(moved_);
  if (device_ != nullptr) device_->Wait();
}

KeptStatistics::Kept* KeptStatistics::Find(int64_t iteration) {
  const auto found = std::ranges::find(kept_, std::optional(iteration), &Kept::iteration);
  return found == kept_.end() ? nullptr : &*found;
}

void KeptStatistics::Keep(int64_t iteration) {
  if (floats_ == 0 || Find(iteration) != nullptr) return;
  // Nothing is before all that is kept.
  Kept& oldest = *std::ranges::min_element(kept_, {}, &Kept::iteration);
  oldest.iteration = iteration;
  CopyTo(oldest.memory);
}

void KeptStatistics::GoBack(int64_t iteration) {
  if (floats_ == 0) return;
  if (const Kept* kept = Find(iteration)) CopyFrom(kept->memory);
  // What came after it will come again.
  for (Kept& kept : kept_) {
    if (kept.iteration && *kept.iteration > iteration) kept.iteration.reset();
  }
}

}  // namespace poseidon
