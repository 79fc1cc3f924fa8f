#include "worker/engine/batch_memory.h"

#include <glog/logging.h>

#include <algorithm>
#include <exception>

namespace poseidon {
namespace {

DeviceMemory AllocateOnHost(size_t bytes) {
  const auto floats = std::make_shared<std::vector<std::byte>>(bytes);
  return {floats, floats->data()};
}

}  // namespace

BatchMemory::BatchMemory(EngineDevice* device, const std::vector<size_t>& floats)
    : device_(device), floats_(floats) {
  for (Slot& slot : slots_) {
    for (const size_t count : floats_) {
      const size_t bytes = count * sizeof(float);
      slot.host.push_back(device_ ? device_->AllocatePinned(bytes) : AllocateOnHost(bytes));
    }
    if (device_ != nullptr) AllocateOnDevice(slot);
  }
}

void BatchMemory::AllocateOnDevice(Slot& slot) {
  for (const size_t count : floats_) {
    slot.device.push_back(device_->Allocate(count * sizeof(float)));
  }
  slot.unused = device_->MakeEvent();
  slot.sent = device_->MakeEvent();
}

BatchMemory::~BatchMemory() {
  for (int slot = 0; slot < kSlots; ++slot) {
    try {
      AwaitHost(slot);
    } catch (const std::exception& error) {
      LOG(WARNING) << error.what();  // nothing is copied any more
    }
  }
}

std::span<float> BatchMemory::host(int slot, size_t top) const {
  return {reinterpret_cast<float*>(slots_[slot].host[top].get()), floats_[top]};
}

void BatchMemory::AwaitHost(int slot) {
  if (device_ != nullptr) device_->WaitOnHost(*slots_[slot].sent);
}

void BatchMemory::Send(int slot) {
  if (device_ == nullptr) return;
  const Slot& sent = slots_[slot];
  if (slot == used_) device_->RecordComputed(*sent.unused);
  for (size_t top = 0; top < floats_.size(); ++top) {
    device_->Copy(sent.device[top].get(), sent.host[top].get(), floats_[top] * sizeof(float),
                  *sent.unused, *sent.sent);
  }
}

void BatchMemory::Use(int slot) {
  if (device_ == nullptr) return;
  if (used_ >= 0 && used_ != slot) device_->RecordComputed(*slots_[used_].unused);
  device_->Await(*slots_[slot].sent);
  used_ = slot;
}

std::span<const float> BatchMemory::values(int slot, size_t top) const {
  if (device_ == nullptr) return host(slot, top);
  return {reinterpret_cast<const float*>(slots_[slot].device[top].get()), floats_[top]};
}

}  // namespace poseidon
