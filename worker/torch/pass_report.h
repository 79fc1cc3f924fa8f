// PassReport: the few numbers of a forward pass that the host wants to know, on their way from the
// device. They go behind the forward pass, so whoever reads them after it has asked for the
// backward pass waits for the forward pass alone, while the device goes on.
//
// One thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

#include "worker/engine/engine_device.h"

namespace poseidon {

class PassReport {
 public:
  // The device outlives this.
  explicit PassReport(EngineDevice& device);

  // Scalars of the device's.
  void Send(const std::vector<at::Tensor>& numbers);
  bool sent() const { return sent_; }
  // What was sent last. Waits until it is there. Throws Error if the device has failed.
  std::span<const double> Read();
  // A new pass begins.
  void Clear() { sent_ = false; }

 private:
  EngineDevice& device_;
  std::unique_ptr<DeviceEvent> arrived_;
  at::Tensor on_host_;
  bool sent_ = false;
};

}  // namespace poseidon
