// FactorUpdate: what a device makes of a layer's factors, of all workers: the gradient's sum by one
// GEMM, and the update of the layer's parameters with it. So under SFB the parameters of a layer
// never cross the bus during training, only factors do.
//
// On a host, with the bits of the host's own update (client/sync/factor_broadcast_syncer.h): this
// file's. On a GPU: device/cuda/factor_update.h.
//
// Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <span>

#include "core/arithmetic/update_rule.h"
#include "device/device.h"
#include "device/host_device.h"

namespace poseidon {

// What there is to know of a layer, the same in all iterations of a plan.
struct ProductUpdate {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int64_t rows = 0;  // of all workers
  const UpdateRule* rule = nullptr;
  Multipliers weights;
  Multipliers bias;
  float gradient_scale = 1;  // of the sum over all rows
};

class FactorUpdate {
 public:
  // In the device's memory. Parameters are outputs x inputs weights and then, if there is room,
  // `outputs` biases.
  struct Memory {
    std::span<float> u;
    std::span<float> v;
    std::span<float> gradient;  // scratch, of parameters' size
    std::span<float> parameters;
    // OptimizerStatePerParameter(rule) floats a parameter. Of a rule MeanGradient, the result;
    // parameters are left alone then.
    std::span<float> optimizer_state;
  };

  virtual ~FactorUpdate() = default;
  // Puts the update of `iteration` in the stream.
  virtual void Apply(const ProductUpdate& layer, int64_t iteration, const Memory& memory,
                     DeviceStream stream) = 0;
};

// For a device whose memory is the host's.
class HostFactorUpdate : public FactorUpdate {
 public:
  // `device` outlives this.
  explicit HostFactorUpdate(HostDevice& device) : device_(device) {}
  void Apply(const ProductUpdate& layer, int64_t iteration, const Memory& memory,
             DeviceStream stream) override;

 private:
  HostDevice& device_;
};

}  // namespace poseidon
