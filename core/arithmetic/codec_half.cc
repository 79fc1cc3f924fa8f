// fp16 and bf16: two bytes a float.
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/half.h"

namespace poseidon {
namespace {

// As those of core/arithmetic/half.h.
#define POSEIDON_INLINE [[gnu::always_inline]] static inline

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
  return {.encoded_bytes = [](const Codec&, size_t floats) { return floats * sizeof(uint16_t); },
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
