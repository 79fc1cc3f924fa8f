// PackStaging: the part of DeviceStaging that has to do with gradients which devices pack before
// they leave, each its share (device/gradient_packer.h). Those with error feedback are
// FeedbackStaging's (client/staging/feedback_staging.h).
//
// Everything is work in the devices' streams of copies to the host. Thread safety and errors are
// DeviceStaging's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "client/staging/device_replica.h"
#include "client/staging/layer_exchange.h"
#include "device/device.h"
#include "device/local_reduction.h"

namespace poseidon {

class PackStaging {
 public:
  // Makes device memory for the largest of the layers of which the exchange wants packed
  // gradients; `replicas` outlive this. Throws Error if a device does not have so much.
  PackStaging(LayerExchange& exchange, const std::vector<DeviceReplica>& replicas);

  bool Has(int layer) const { return !exchange_.packed_gradient(layer).bytes.empty(); }
  // A replica's share of each of the layer's blobs, packed, to the host.
  void Send(int layer, size_t replica, std::span<const std::span<float>> blobs);

 private:
  LayerExchange& exchange_;
  const std::vector<DeviceReplica>& replicas_;
  std::vector<DeviceMemory> packed_;  // a replica each, for one blob after the other
};

}  // namespace poseidon
