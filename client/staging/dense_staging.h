// DenseStaging: the part of DeviceStaging that has to do with layers whose devices update them from
// a gradient (device/parameter_update.h). What has come of all workers' gradients goes to the
// devices, which have the optimizer state; where the worker is alone it has never left them. The
// host's values and state stand still meanwhile and follow when somebody asks for them.
//
// Of several replicas each updates its share of each blob, of which alone it has the state, and the
// values are gathered then (device/local_reduction.h).
//
// Everything is work in the devices' streams. Thread safety and errors are DeviceStaging's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/staging/device_replica.h"
#include "client/staging/layer_exchange.h"
#include "client/staging/share_copy.h"
#include "device/local_reduction.h"

namespace poseidon {

class DenseStaging {
 public:
  // Makes device memory for the layers that LayerExchange::dense_update names. What is pointed to
  // outlives this; `reduction` is null for one replica. Throws Error if a device does not have so
  // much.
  DenseStaging(LayerExchange& exchange, const std::vector<DeviceReplica>& replicas,
               LocalReduction* reduction);

  bool Has(int layer) const { return layers_[layer].has_value(); }
  // The host's optimizer state -> the devices, in their streams of copies.
  void LoadOptimizerState(int layer);
  // What has been reduced of the layers' gradients of `iteration` is on the host: to where the
  // devices have their own, in their streams of copies. Consecutive layers.
  void CopyGradients(std::span<const int> layers, int64_t iteration);
  // It is there before all that is in the update streams from now on: the values there are those of
  // the next iteration then.
  void Update(int layer, int64_t iteration);
  // Values and state -> the host, each device's share, in its stream of copies, which must be
  // behind the update.
  void CopyToHost(int layer);

 private:
  // Of one blob, or a part of it that the rule treats alike, one replica's share.
  struct Piece {
    std::span<float> gradient;
    std::span<float> values;
    std::span<float> state;
    std::span<float> values_on_host;
    std::span<float> state_on_host;
    Multipliers multipliers;
  };
  struct Layer {
    DenseUpdate description;
    std::vector<std::vector<Piece>> pieces;  // a replica each
  };

  void AddPieces(int layer, size_t replica, std::vector<Piece>& pieces);
  void AllocateState(size_t replica);
  void CopyState(int layer, CopyDirection direction);

  LayerExchange& exchange_;
  const std::vector<DeviceReplica>& replicas_;
  LocalReduction* reduction_;
  std::vector<std::optional<Layer>> layers_;
  std::vector<DeviceMemory> state_;  // a replica each
  std::vector<CopyRun> runs_;        // kept for its memory
  std::vector<LocalReduction::Member> members_;
};

}  // namespace poseidon
