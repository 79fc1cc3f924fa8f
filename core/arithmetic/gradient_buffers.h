// Where a layer's gradient is written, between whoever computes it and whoever sends it. Views:
// none owns its memory; whoever hands one out says how long it is valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/arithmetic/codec.h"

namespace poseidon {

// A worker's contribution to an iteration. Either `dense` is set, floats of all the layer's blobs
// in their order; or the factors are: u rows x outputs, the gradient at the layer's top, and v
// rows x inputs, the data at its bottom, row-major (the weights' gradient is u^T v, the bias's the
// column sums of u). With factors the dense gradient is never computed.
struct GradientBuffers {
  std::span<float> dense;
  std::span<float> u;
  std::span<float> v;
};

// The factors of all workers for one iteration, stacked in the order of ranks, so that one GEMM
// sums them: u is workers * rows x outputs, v is workers * rows x inputs, row-major.
struct FactorStack {
  std::span<float> u;
  std::span<float> v;
};

// Where a worker's devices put a layer's gradient, instead of `dense`, if they pack it float by
// float: EncodedBytes(codec, floats) bytes. Empty if they don't pack it.
struct PackedGradient {
  std::span<std::byte> bytes;
  Codec codec;
};

// A KV pair that a device packs with error feedback.
struct PackedChunk {
  Codec codec;
  int layer = 0;               // in which its first float is,
  int64_t offset = 0;          // which has so many of the layer's before it
  std::span<float> residual;   // the host's, of as many floats as it has
  std::span<std::byte> bytes;  // where it goes
};

}  // namespace poseidon
