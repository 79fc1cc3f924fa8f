// Where in a worker's memory its contribution to an iteration is written.
#pragma once

#include <cstdint>
#include <vector>

#include "client/sync/syncer.h"
#include "core/arithmetic/gradient_buffers.h"

namespace poseidon {

// The buffers of the context's worker; empty spans if it holds phantoms. Valid as long as the
// context lives. May be written from the layer's forward pass in `iteration` until its gradient is
// handed to the lanes.
GradientBuffers GradientBuffersOf(const SyncContext& context, int layer, int64_t iteration);

// Where devices pack (WorkerSessionOptions::devices_pack).
PackedGradient PackedGradientOf(const SyncContext& context, int layer);
// In the order of their floats; none where devices don't pack.
std::vector<PackedChunk> PackedChunksOf(const SyncContext& context);

}  // namespace poseidon
