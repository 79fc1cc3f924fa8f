// What a device is asked to pack: one KV pair's floats.
#pragma once

#include <cstddef>
#include <span>

namespace poseidon {

// The arguments of core/arithmetic/codec.h's Encode, in a device's memory; `packed` begins at a
// multiple of 4 bytes. A value.
struct Packing {
  std::span<const float> floats;
  std::span<float> residual;  // empty: none
  std::span<std::byte> packed;
};

}  // namespace poseidon
