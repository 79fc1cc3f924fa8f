#include "worker/compute_device.h"

#include <utility>

#include "core/arithmetic/sum.h"

namespace poseidon {

HostComputeDevice::HostComputeDevice(const std::string& name, bool like_a_gpu)
    : device_({.name = name, .before_copy = {}}),
      stream_(device_.MakeStream()),
      like_a_gpu_(like_a_gpu),
      engine_device_(device_, DeviceOfEngine::Computes::kOnThread, stream_, std::nullopt),
      factor_update_(device_),
      packer_(device_) {}

void HostComputeDevice::Run(std::function<void()> work) {
  device_.Run(stream_, [this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
      throw;  // so that nothing that comes after it in the stream is done
    }
  });
}

void HostComputeDevice::Wait() {
  device_.Synchronize(stream_);
  RethrowFromWork();
  device_.Check();
}

void HostComputeDevice::RethrowFromWork() {
  const std::lock_guard lock(mutex_);
  if (thrown_ != nullptr) std::rethrow_exception(thrown_);
}

void HostComputeDevice::AddInto(std::span<float> sum, std::span<const float> addend) {
  Run([=] { poseidon::AddInto(sum, std::as_bytes(addend)); });
}

void HostComputeDevice::Scale(std::span<float> floats, float factor) {
  Run([=] {
    for (float& value : floats) value *= factor;
  });
}

}  // namespace poseidon
