// A block of floats as bytes with one scale: what core/arithmetic/codec.h's kInt8 does with each,
// on hosts and on CUDA devices.
//
//   const Int8Scale scale = Int8::ScaleFor(LargestMagnitude(block));
//   byte = Int8::Quantize(x, scale.inverse);           // -127 to 127
//   x = Int8::Dequantize(byte, scale.step);            // within half a step of what it was
//
// Pure functions. A scale for each block, not for each vector, as one large float would else take
// the digits of all others. Hosts and devices agree to the bit, provided that no compiler fuses a
// product with a sum.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/arithmetic/device_function.h"
#include "core/arithmetic/half.h"

// As those of core/arithmetic/half.h.
#define POSEIDON_INT8 [[gnu::always_inline]] POSEIDON_HOST_DEVICE static inline

namespace poseidon {

struct Int8Scale {
  float step;     // of the values that bytes stand for
  float inverse;  // 1 / step
};

struct Int8 {
  // Floats that share a step. Its 4 bytes add 1.6 % to theirs; with 64 they would add 6 %. The step
  // follows the largest of them, which of 1024 normal numbers is a seventh larger than of 256.
  static constexpr size_t kBlock = 256;
  static constexpr float kLevels = 127;  // on either side of 0; -128 would have no counterpart

  // For a block whose largest magnitude has these bits, without a sign. If it is infinite or NaN,
  // so that all magnitudes' order is that of their bits, everything becomes NaN. Where steps would
  // be subnormal (that is below 10^-36, a million millionth of what trains anything), all become 0.
  // A step has 7 bits less than a float, so that its product with a byte is exact, and none is
  // beyond the largest. That costs at most a thousandth of a step.
  POSEIDON_INT8 Int8Scale ScaleFor(uint32_t largest) {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    constexpr uint32_t least = 0x04000000;  // 2^-119; a step is a normal number from there on
    const auto magnitude = std::bit_cast<float>(largest);
    if (largest >= Float32::kInfinity) return {nan, 0};
    if (largest < least) return {0, 0};
    constexpr uint32_t precision = 0xffffff80;
    const auto step =
        std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude / kLevels) & precision);
    return {step, 1 / step};
  }

  // To nearest, ties to even: the last place of the shift is 1. `value` is at most the largest, so
  // that the result is at most kLevels; an inverse of 0 makes all that is finite 0.
  POSEIDON_INT8 int8_t Quantize(float value, float inverse) {
    constexpr float shift = 12582912;  // 1.5 x 2^23
    const float shifted = value * inverse + shift;
    return static_cast<int8_t>(std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(shift));
  }

  POSEIDON_INT8 float Dequantize(int8_t byte, float step) {
    return static_cast<float>(byte) * step;
  }
};

}  // namespace poseidon

#undef POSEIDON_INT8
