// A float32 as fp16 (IEEE 754 binary16) or bf16 (its upper half), to nearest, ties to even, and
// back: what core/arithmetic/codec.h's kFp16 and kBf16 do with each float, on hosts and on CUDA
// devices. A NaN stays one. Pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "core/arithmetic/device_function.h"

// Inlined into loops that are compiled for several instruction sets, and without branches, so that
// those loops are vectorized.
#define POSEIDON_HALF [[gnu::always_inline]] POSEIDON_HOST_DEVICE static inline

namespace poseidon {

// Bits of a float32.
struct Float32 {
  static constexpr uint32_t kMagnitude = 0x7fffffff;
  static constexpr uint32_t kInfinity = 0x7f800000;
  static constexpr uint32_t kQuiet = 0x00400000;  // set in a NaN that an instruction has made
};

struct Fp16 {
  static constexpr int kMantissaLost = 23 - 10;          // mantissa bits of float32 and of fp16
  static constexpr uint32_t kRebias = (127 - 15) << 23;  // difference of the exponents' biases
  static constexpr uint32_t kHalfInfinity = 0x7c00;
  static constexpr uint32_t kSmallestNormal = 0x38800000;  // 2^-14

  POSEIDON_HALF uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & Float32::kMagnitude;
    // Just under half of the last place that stays, and the rest if that place is odd: to nearest,
    // ties to even. A carry into the exponent is right, and ends at infinity.
    const uint32_t odd = (magnitude >> kMantissaLost) & 1U;
    const uint32_t rounded = magnitude + ((1U << (kMantissaLost - 1)) - 1U) + odd;
    const uint32_t unlimited = (rounded - kRebias) >> kMantissaLost;
    const uint32_t normal = unlimited < kHalfInfinity ? unlimited : kHalfInfinity;
    // The last place of 0.5F is the smallest fp16, so this addition rounds to fp16's subnormals.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                               std::bit_cast<uint32_t>(0.5F);
    const uint32_t nan = ((magnitude | Float32::kQuiet) >> kMantissaLost) & 0x7fffU;
    const uint32_t number = magnitude < kSmallestNormal ? subnormal : normal;
    const uint32_t half = magnitude > Float32::kInfinity ? (nan | kHalfInfinity) : number;
    return static_cast<uint16_t>(half | ((bits >> 16U) & 0x8000U));
  }

  POSEIDON_HALF float ToFloat(uint16_t half) {
    const uint32_t shifted = (half & 0x7fffU) << kMantissaLost;
    const uint32_t normal = shifted + kRebias;
    // m 2^-24 is (1 + m / 1024) 2^-14 - 2^-14, which is exact.
    const uint32_t subnormal = std::bit_cast<uint32_t>(
        std::bit_cast<float>(shifted + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal));
    constexpr uint32_t infinity = kHalfInfinity << kMantissaLost;
    const uint32_t nan = shifted | Float32::kInfinity | Float32::kQuiet;
    const uint32_t number = shifted < (1U << 23U) ? subnormal : normal;
    const uint32_t infinite = shifted > infinity ? nan : Float32::kInfinity;
    const uint32_t magnitude = shifted < infinity ? number : infinite;
    return std::bit_cast<float>(magnitude | ((half & 0x8000U) << 16U));
  }
};

struct Bf16 {
  POSEIDON_HALF uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t odd = (bits >> 16U) & 1U;
    const uint32_t rounded = bits + 0x7fffU + odd;  // to nearest, ties to even
    const uint32_t number =
        (bits & Float32::kMagnitude) > Float32::kInfinity ? (bits | Float32::kQuiet) : rounded;
    return static_cast<uint16_t>(number >> 16U);
  }

  POSEIDON_HALF float ToFloat(uint16_t half) {
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16U);
  }
};

}  // namespace poseidon

#undef POSEIDON_HALF
