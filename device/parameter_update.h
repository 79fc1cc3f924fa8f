// ParameterUpdate: core/arithmetic/update_rule.h's Update on a device, of parameters that are in
// its memory. So where workers update, only gradients cross the bus; and where a worker is alone,
// nothing does.
//
// On a host: this file's. On a GPU: device/cuda/parameter_update.h. Both have the bits of Update.
//
// Thread safety: one thread at a time.
#pragma once

#include <span>

#include "core/arithmetic/update_rule.h"
#include "device/device.h"
#include "device/host_device.h"

namespace poseidon {

class ParameterUpdate {
 public:
  virtual ~ParameterUpdate() = default;
  // Puts Update() in the stream. All spans are of the device's memory; the step's rule outlives
  // what is in the stream.
  virtual void Apply(const UpdateStep& step, std::span<const float> gradient_sum,
                     std::span<float> parameters, std::span<float> optimizer_state,
                     DeviceStream stream) = 0;
};

// For a device whose memory is the host's.
class HostParameterUpdate : public ParameterUpdate {
 public:
  // `device` outlives this.
  explicit HostParameterUpdate(HostDevice& device) : device_(device) {}
  void Apply(const UpdateStep& step, std::span<const float> gradient_sum,
             std::span<float> parameters, std::span<float> optimizer_state,
             DeviceStream stream) override {
    device_.Run(stream, [=] { Update(step, gradient_sum, parameters, optimizer_state); });
  }

 private:
  HostDevice& device_;
};

}  // namespace poseidon
