// DeviceReplica: a replica of the net in a device's memory, as DeviceStaging has to know it. Views:
// none owns what it points to.
#pragma once

#include <span>
#include <vector>

#include "device/device.h"
#include "device/factor_update.h"
#include "device/gradient_packer.h"
#include "device/parameter_update.h"

namespace poseidon {

// A layer in a device's memory: parameters and gradient in the order and the sizes of the layer's
// blobs. Under a scheme of factors u and v are sent instead of the gradient; each device has
// 1 / devices of the rows.
//
// What follows each other there as it does on the host, blobs or layers of a bucket, is copied as
// one.
struct DeviceLayer {
  std::vector<std::span<float>> values;
  std::vector<std::span<float>> gradient;
  std::span<const float> u;
  std::span<const float> v;
};

// A device with its replica of the net. What its update functions are null for, the exchange must
// not leave to devices.
struct DeviceReplica {
  Device* device = nullptr;
  std::vector<DeviceLayer> layers;
  // For layers updated from factors; unless the rule is MeanGradient their values lie one blob
  // behind the other.
  FactorUpdate* factor_update = nullptr;
  // For layers updated from a gradient.
  ParameterUpdate* parameter_update = nullptr;
  // For gradients that the exchange wants packed.
  GradientPacker* packer = nullptr;
};

}  // namespace poseidon
