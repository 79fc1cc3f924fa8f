// FactorStaging: the part of DeviceStaging that has to do with layers whose devices update them
// themselves (device/factor_update.h). All factors go to each replica's device, which has the
// layer's optimizer state and makes the update; the host's values and state stand still meanwhile
// and follow when somebody asks for them.
//
// Everything is work in the devices' streams. Thread safety and errors are DeviceStaging's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "client/staging/layer_exchange.h"
#include "client/staging/stream_trace.h"
#include "device/device.h"
#include "device/factor_update.h"

namespace poseidon {

// A device with its update and, by layer, the blobs that the update is for: parameters, one behind
// the other in memory, or, of a rule MeanGradient, wherever the program has its gradients.
struct FactorReplica {
  Device* device = nullptr;
  FactorUpdate* update = nullptr;
  std::vector<std::vector<std::span<float>>> blobs;
};

class FactorStaging {
 public:
  // Makes device memory for the layers that LayerExchange::product_update names. No replicas: for
  // none. Throws Error if a device does not have so much.
  FactorStaging(LayerExchange& exchange, std::vector<FactorReplica> replicas, StreamTrace trace);

  bool Has(int layer) const { return !layers_.empty() && layers_[layer].has_value(); }
  // The host's optimizer state -> the devices, in their streams of copies.
  void LoadOptimizerState(int layer);
  // All factors of `iteration` are here: in each device's update stream, after which its parameters
  // are those of the next iteration.
  void Apply(int layer, int64_t iteration);
  // Replica 0's parameters (but of MeanGradient, which has none) and state -> the host, in its
  // stream of copies, which must be behind the update.
  void CopyToHost(int layer);

 private:
  struct Layer {
    ProductUpdate description;
    std::vector<FactorUpdate::Memory> memory;                 // a replica each
    std::vector<std::unique_ptr<DeviceEvent>> factors_there;  // likewise
  };

  // In the replica's update stream.
  void Update(int layer, int64_t iteration, size_t replica);
  // The layer's memory on a replica's device.
  FactorUpdate::Memory MemoryOf(const ProductUpdate& layer, size_t replica, size_t index);
  std::span<float> Allocate(Device& device, size_t floats);

  LayerExchange& exchange_;
  std::vector<FactorReplica> replicas_;
  StreamTrace trace_;
  std::vector<DeviceMemory> owned_;
  std::vector<std::span<float>> scratch_;  // a replica each, used by its layers in turn
  std::vector<std::optional<Layer>> layers_;
};

}  // namespace poseidon
