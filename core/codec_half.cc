// fp16 and bf16: two bytes a float.
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/codec_functions.h"

namespace poseidon {
namespace {

// Everything here is inlined into loops that are compiled for several instruction sets, and has no
// branches, so that those loops are vectorised.
#define POSEIDON_INLINE [[gnu::always_inline]] static inline

// Names for bits of a float32.
constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kQuiet = 0x00400000;  // set in a NaN that an instruction has made

struct Fp16 {
  static constexpr int kMantissaLost = 23 - 10;          // mantissa bits of float32 and of fp16
  static constexpr uint32_t kRebias = (127 - 15) << 23;  // difference of the exponents' biases
  static constexpr uint32_t kHalfInfinity = 0x7c00;
  static constexpr uint32_t kSmallestNormal = 0x38800000;  // 2^-14

  POSEIDON_INLINE uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = bits & kMagnitude;
    // Just under half of the last place that stays, and the rest if that place is odd: to nearest,
    // ties to even. A carry into the exponent is right, and ends at infinity.
    const uint32_t odd = (magnitude >> kMantissaLost) & 1U;
    const uint32_t rounded = magnitude + ((1U << (kMantissaLost - 1)) - 1U) + odd;
    const uint32_t unlimited = (rounded - kRebias) >> kMantissaLost;
    const uint32_t normal = unlimited < kHalfInfinity ? unlimited : kHalfInfinity;
    // The last place of 0.5F is the smallest fp16, so this addition rounds to fp16's subnormals.
    const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) -
                               std::bit_cast<uint32_t>(0.5F);
    const uint32_t nan = ((magnitude | kQuiet) >> kMantissaLost) & 0x7fffU;
    const uint32_t number = magnitude < kSmallestNormal ? subnormal : normal;
    const uint32_t half = magnitude > kInfinity ? (nan | kHalfInfinity) : number;
    return static_cast<uint16_t>(half | ((bits >> 16U) & 0x8000U));
  }

  POSEIDON_INLINE float ToFloat(uint16_t half) {
    const uint32_t shifted = (half & 0x7fffU) << kMantissaLost;
    const uint32_t normal = shifted + kRebias;
    // m 2^-24 is (1 + m / 1024) 2^-14 - 2^-14, which is exact.
    const uint32_t subnormal = std::bit_cast<uint32_t>(
        std::bit_cast<float>(shifted + kSmallestNormal) - std::bit_cast<float>(kSmallestNormal));
    constexpr uint32_t infinity = kHalfInfinity << kMantissaLost;
    const uint32_t nan = shifted | kInfinity | kQuiet;
    const uint32_t number = shifted < (1U << 23U) ? subnormal : normal;
    const uint32_t infinite = shifted > infinity ? nan : kInfinity;
    const uint32_t magnitude = shifted < infinity ? number : infinite;
    return std::bit_cast<float>(magnitude | ((half & 0x8000U) << 16U));
  }
};

struct Bf16 {
  POSEIDON_INLINE uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t odd = (bits >> 16U) & 1U;
    const uint32_t rounded = bits + 0x7fffU + odd;  // to nearest, ties to even
    const uint32_t number = (bits & kMagnitude) > kInfinity ? (bits | kQuiet) : rounded;
    return static_cast<uint16_t>(number >> 16U);
  }

  POSEIDON_INLINE float ToFloat(uint16_t half) {
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16U);
  }
};

template <typename Half>
POSEIDON_INLINE void EncodeLoop(const float* __restrict values, size_t count,
                                std::byte* __restrict out) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t half = Half::FromFloat(values[i]);
    std::memcpy(out + i * sizeof(half), &half, sizeof(half));
  }
}

template <typename Half, typename Merge>
POSEIDON_INLINE void MergeLoop(const std::byte* __restrict encoded, size_t count,
                               float* __restrict x) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t half;
    std::memcpy(&half, encoded + i * sizeof(half), sizeof(half));
    x[i] = Merge::Merge(x[i], Half::ToFloat(half));
  }
}

// What any processor can do.
template <typename Half>
struct Portable {
  static void Encode(std::span<const float> values, std::span<std::byte> out) {
    EncodeLoop<Half>(values.data(), values.size(), out.data());
  }
  template <typename Merge>
  static void Apply(std::span<const std::byte> encoded, std::span<float> x) {
    MergeLoop<Half, Merge>(encoded.data(), x.size(), x.data());
  }
};

#ifdef __x86_64__
struct Bf16Avx2 {
  [[gnu::target("avx2")]] static void Encode(std::span<const float> values,
                                             std::span<std::byte> out) {
    EncodeLoop<Bf16>(values.data(), values.size(), out.data());
  }
  template <typename Merge>
  [[gnu::target("avx2")]] static void Apply(std::span<const std::byte> encoded,
                                            std::span<float> x) {
    MergeLoop<Bf16, Merge>(encoded.data(), x.size(), x.data());
  }
};

// With the processor's own conversions, eight at a time.
struct Fp16F16c {
  static constexpr size_t kLanes = 8;

  [[gnu::target("avx2,f16c")]] static void Encode(std::span<const float> values,
                                                  std::span<std::byte> out) {
    size_t i = 0;
    for (; i + kLanes <= values.size(); i += kLanes) {
      const __m128i halves =
          _mm256_cvtps_ph(_mm256_loadu_ps(&values[i]), _MM_FROUND_TO_NEAREST_INT);
      std::memcpy(&out[i * sizeof(uint16_t)], &halves, sizeof(halves));
    }
    EncodeLoop<Fp16>(values.data() + i, values.size() - i, out.data() + i * sizeof(uint16_t));
  }

  // Decoded floats go through a small buffer, so that one loop without intrinsics merges them.
  template <typename Merge>
  [[gnu::target("avx2,f16c")]] static void Apply(std::span<const std::byte> encoded,
                                                 std::span<float> x) {
    constexpr size_t kBuffer = 256;  // floats; small against the first-level cache
    std::array<float, kBuffer> decoded;
    while (!x.empty()) {
      const std::span<float> piece = x.first(std::min(x.size(), kBuffer));
      Decode(encoded.data(), std::span(decoded).first(piece.size()));
      for (size_t i = 0; i < piece.size(); ++i) piece[i] = Merge::Merge(piece[i], decoded[i]);
      x = x.subspan(piece.size());
      encoded = encoded.subspan(piece.size() * sizeof(uint16_t));
    }
  }

 private:
  [[gnu::target("avx2,f16c")]] static void Decode(const std::byte* encoded, std::span<float> out) {
    size_t i = 0;
    for (; i + kLanes <= out.size(); i += kLanes) {
      __m128i halves;
      std::memcpy(&halves, encoded + i * sizeof(uint16_t), sizeof(halves));
      _mm256_storeu_ps(&out[i], _mm256_cvtph_ps(halves));
    }
    MergeLoop<Fp16, Assign>(encoded + i * sizeof(uint16_t), out.size() - i, out.data() + i);
  }
};
#endif

#undef POSEIDON_INLINE

#ifdef __x86_64__
// As __builtin_cpu_supports("f16c"), which clang 14 does not know. Its registers are AVX's.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

template <typename Loops>
CodecFunctions FunctionsOf() {
  return {
      .encoded_bytes = [](const CodecSpec&, size_t floats) { return floats * sizeof(uint16_t); },
      .encode = Loops::Encode,
      .valid = [](std::span<const std::byte>, size_t) { return true; },
      .assign = Loops::template Apply<Assign>,
      .add = Loops::template Apply<Add>,
      .lose = Loops::template Apply<Lose>,
      .block = 1024};  // 4 KiB of floats, which stay in the first-level cache
}

}  // namespace

CodecFunctions Fp16Functions(Instructions instructions) {
#ifdef __x86_64__
  if (instructions == Instructions::kFastest && __builtin_cpu_supports("avx2") != 0 && HasF16c()) {
    return FunctionsOf<Fp16F16c>();
  }
#endif
  return FunctionsOf<Portable<Fp16>>();
}

CodecFunctions Bf16Functions(Instructions instructions) {
#ifdef __x86_64__
  if (instructions == Instructions::kFastest && __builtin_cpu_supports("avx2") != 0) {
    return FunctionsOf<Bf16Avx2>();
  }
#endif
  return FunctionsOf<Portable<Bf16>>();
}

}  // namespace poseidon
