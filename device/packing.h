// What a device is asked to pack: one KV pair's floats.
#pragma once

#include <cstddef>
#include <span>

namespace poseidon {

// So many are packed together, at the most: their addresses are a kernel's parameters, which have
// 4 KB.
inline constexpr size_t kMostPackings = 64;

// The arguments of core/arithmetic/codec.h's Encode, in a device's memory; `packed` begins at a
// multiple of 4 bytes. A value.
struct Packing {
  std::span<const float> floats;
  std::span<float> residual;  // empty: none
  std::span<std::byte> packed;
};

}  // namespace poseidon
