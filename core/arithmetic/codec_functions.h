// What core/arithmetic/codec.cc picks from: the functions of each codec. For
// core/arithmetic/codec*.cc and their tests; others use core/arithmetic/codec.h, which checks sizes
// and says what is computed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "core/arithmetic/codec.h"
#include "core/arithmetic/device_function.h"

namespace poseidon {

// One codec. Sizes of spans fit each other, and are not checked again.
struct CodecFunctions {
  size_t (*encoded_bytes)(const Codec& spec, size_t floats);
  void (*encode)(std::span<const float> values, std::span<std::byte> out);
  // Whether `encode` can have made these bytes, of the right size, of so many floats.
  bool (*valid)(std::span<const std::byte> encoded, size_t floats);
  // With d what valid bytes stand for: x = d; x += d; x -= d, or 0 where that is not finite.
  void (*assign)(std::span<const std::byte> encoded, std::span<float> x);
  void (*add)(std::span<const std::byte> encoded, std::span<float> x);
  void (*lose)(std::span<const std::byte> encoded, std::span<float> x);
  // Floats that are encoded independently of others; 0 if all depend on all. Blocks follow each
  // other in the encoded bytes.
  size_t block;
};

// kPortable: what any processor can do. kFastest: what this one can. They give the same bits.
enum class Instructions { kPortable, kFastest };

CodecFunctions Fp32Functions();
CodecFunctions Fp16Functions(Instructions instructions);
CodecFunctions Bf16Functions(Instructions instructions);
CodecFunctions OneBitFunctions();
CodecFunctions TopKFunctions(Instructions instructions);
CodecFunctions Int8Functions(Instructions instructions);

// How a decoded float meets the one in its place.
struct Assign {
  POSEIDON_HOST_DEVICE static float Merge(float /*x*/, float decoded) { return decoded; }
};
struct Add {
  POSEIDON_HOST_DEVICE static float Merge(float x, float decoded) { return x + decoded; }
};
struct Lose {
  POSEIDON_HOST_DEVICE static float Merge(float x, float decoded) {
    const float lost = x - decoded;
    // False for NaN, too.
    return std::abs(lost) <= std::numeric_limits<float>::max() ? lost : 0.0F;
  }
};

}  // namespace poseidon
