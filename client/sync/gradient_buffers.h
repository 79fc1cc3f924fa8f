// Where a worker's contribution to an iteration is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/sync/syncer.h"
#include "core/arithmetic/codec.h"

namespace poseidon {

// `dense`, or u and v of a layer under SFB or ADAM (u rows x outputs, the gradient at the layer's
// top; v rows x inputs, the data at its bottom).
struct GradientBuffers {
  std::span<float> dense;
  std::span<float> u;
  std::span<float> v;
};

// Where a layer's gradient goes that the worker's devices pack float by float
// (SessionOptions::devices_pack), instead of `dense`; empty for others.
struct PackedBuffer {
  std::span<std::byte> bytes;
  Codec codec;
};
PackedBuffer PackedBufferOf(const SyncContext& context, int layer);

// A KV pair that a device packs with error feedback.
struct PackedChunk {
  Codec codec;
  int layer = 0;               // in which its first float is,
  int64_t offset = 0;          // which has so many of the layer's before it
  std::span<float> residual;   // the host's, of as many floats as it has
  std::span<std::byte> bytes;  // where it goes
};
// In the order of their floats; none where devices don't pack.
std::vector<PackedChunk> PackedChunksOf(const SyncContext& context);

// Of the worker whose context it is; empty spans if that holds phantoms. Valid as long as the
// context lives. May be written from the layer's forward pass in `iteration` until its gradient is
// handed to the lanes.
GradientBuffers GradientBuffersOf(const SyncContext& context, int layer, int64_t iteration);

}  // namespace poseidon
