#include "worker/engine/compute_device.h"

#include <utility>

#include "core/arithmetic/sum.h"

namespace poseidon {

HostComputeDevice::HostComputeDevice(HostDevice::Options options, bool like_a_gpu)
    : device_(std::move(options)),
      stream_(device_.MakeStream()),
      like_a_gpu_(like_a_gpu),
      engine_device_(device_, DeviceOfEngine::Computes::kOnThread, stream_, std::nullopt),
      factor_update_(device_),
      parameter_update_(device_),
      packer_(device_) {
  if (like_a_gpu) launches_.emplace();
}

void HostComputeDevice::Run(std::function<void()> work) {
  const auto launch = [this, work = std::move(work)] {
    device_.Run(stream_, [this, work] {
      try {
        work();
      } catch (...) {
        const std::lock_guard lock(mutex_);
        thrown_ = std::current_exception();
        throw;  // so that nothing that comes after it in the stream is done
      }
    });
  };
  launches_ ? launches_->Run(launch) : launch();
}

void HostComputeDevice::AwaitLaunches() {
  if (launches_) launches_->Await();
}

void HostComputeDevice::Wait() {
  AwaitLaunches();
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
