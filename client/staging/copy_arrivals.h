// CopyArrivals: which of a DeviceStaging's copies are on their way, and what has come.
//
// Thread-safe: told by threads of the devices, which share it, so it outlives the stage.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <vector>

#include "client/staging/layer_exchange.h"
#include "device/device.h"

namespace poseidon {

class CopyArrivals {
 public:
  // Wakes the exchange whenever something has come.
  CopyArrivals(LayerExchange& exchange, size_t layers, size_t replicas);

  // Each replica will say once that its copies of the layer are done. A layer's next values may
  // leave for the device before the word that the last ones are there, on which nothing depends, is
  // here.
  void Expect(int layer, CopyDirection direction);
  void Arrive(int layer, CopyDirection direction);
  bool IsUnderWay(int layer, CopyDirection direction);
  // Puts into `layers` those whose gradients have come to the host since the last call.
  void Take(std::vector<int>& layers);

  // A copy to the host that is no gradient's begins, and is done.
  void ExpectOther();
  void ArriveOther();
  bool IsOtherUnderWay();

  // The exchange may go.
  void Close();

 private:
  size_t& Missing(int layer, CopyDirection direction) {
    return missing_[layer][static_cast<size_t>(direction)];
  }

  size_t replicas_;
  std::mutex mutex_;                            // of what follows
  std::vector<std::array<size_t, 2>> missing_;  // words of replicas, by layer and direction
  std::vector<int> on_host_;
  size_t others_ = 0;
  LayerExchange* exchange_;
};

}  // namespace poseidon
