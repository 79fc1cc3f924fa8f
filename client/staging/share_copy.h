// Copies between a device's share of a layer's blobs and their place in the layer's floats on the
// host. Pieces that follow each other in both memories become one copy, of however many blobs and
// layers they are: a copy costs some microseconds beside its bytes.
//
//   std::vector<CopyRun> runs;
//   AddShare(blobs, host, replica, replicas, runs);        // of one layer, then of the next
//   CopyRuns(device, CopyDirection::kToHost, runs);
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "device/device.h"

namespace poseidon {

// Of one size.
struct CopyRun {
  std::span<float> on_device;
  std::span<float> on_host;
};

// Appends the pair, or makes the last run longer by it. Nothing for empty ones.
void AddRun(const CopyRun& run, std::vector<CopyRun>& runs);
// Likewise the shares (ShareOf, device/local_reduction.h) of replica number `replica` of each blob;
// `host` has the floats of all blobs, one behind the other.
void AddShare(std::span<const std::span<float>> blobs, std::span<float> host, size_t replica,
              size_t replicas, std::vector<CopyRun>& runs);
// In the device's stream of that direction.
void CopyRuns(Device& device, CopyDirection direction, std::span<const CopyRun> runs);

}  // namespace poseidon
