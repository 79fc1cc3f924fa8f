// A byte a float, and a scale for each block.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/int8.h"

namespace poseidon {
namespace {

// As those of core/arithmetic/half.h.
#define POSEIDON_INLINE [[gnu::always_inline]] static inline

constexpr size_t kBlock = Int8::kBlock;
// A block begins with its step, a float; a byte for each float follows.
constexpr size_t kBlockBytes = sizeof(float) + kBlock;

size_t EncodedBytes(const Codec& /*spec*/, size_t floats) {
  return floats + (floats + kBlock - 1) / kBlock * sizeof(float);
}

POSEIDON_INLINE uint32_t LargestMagnitude(const float* __restrict values, size_t count) {
  int32_t largest = 0;  // compared as signed numbers, which any processor has instructions for
  for (size_t i = 0; i < count; ++i) {
    const auto magnitude =
        static_cast<int32_t>(std::bit_cast<uint32_t>(values[i]) & Float32::kMagnitude);
    largest = largest < magnitude ? magnitude : largest;
  }
  return static_cast<uint32_t>(largest);
}

POSEIDON_INLINE void EncodeBlock(const float* __restrict values, size_t count,
                                 std::byte* __restrict out) {
  const Int8Scale scale = Int8::ScaleFor(LargestMagnitude(values, count));
  std::memcpy(out, &scale.step, sizeof(scale.step));
  auto* const bytes = reinterpret_cast<int8_t*>(out + sizeof(scale.step));
  if (scale.inverse == 0) {  // NaN times 0 is no number, which has no byte
    std::memset(bytes, 0, count);
    return;
  }
  for (size_t i = 0; i < count; ++i) bytes[i] = Int8::Quantize(values[i], scale.inverse);
}

template <typename Merge>
POSEIDON_INLINE void MergeBlock(const std::byte* __restrict encoded, size_t count,
                                float* __restrict x) {
  float step;
  std::memcpy(&step, encoded, sizeof(step));
  const auto* const bytes = reinterpret_cast<const int8_t*>(encoded + sizeof(step));
  for (size_t i = 0; i < count; ++i) x[i] = Merge::Merge(x[i], Int8::Dequantize(bytes[i], step));
}

POSEIDON_INLINE void EncodeAll(std::span<const float> values, std::span<std::byte> out) {
  for (size_t begin = 0, at = 0; begin < values.size(); begin += kBlock, at += kBlockBytes) {
    EncodeBlock(&values[begin], std::min(kBlock, values.size() - begin), &out[at]);
  }
}

template <typename Merge>
POSEIDON_INLINE void MergeAll(std::span<const std::byte> encoded, std::span<float> x) {
  for (size_t begin = 0, at = 0; begin < x.size(); begin += kBlock, at += kBlockBytes) {
    MergeBlock<Merge>(&encoded[at], std::min(kBlock, x.size() - begin), &x[begin]);
  }
}

// What any processor can do.
struct Portable {
  static void Encode(std::span<const float> values, std::span<std::byte> out) {
    EncodeAll(values, out);
  }
  template <typename Merge>
  static void Apply(std::span<const std::byte> encoded, std::span<float> x) {
    MergeAll<Merge>(encoded, x);
  }
};

#ifdef __x86_64__
struct Avx2 {
  [[gnu::target("avx2")]] static void Encode(std::span<const float> values,
                                             std::span<std::byte> out) {
    EncodeAll(values, out);
  }
  template <typename Merge>
  [[gnu::target("avx2")]] static void Apply(std::span<const std::byte> encoded,
                                            std::span<float> x) {
    MergeAll<Merge>(encoded, x);
  }
};
#endif

#undef POSEIDON_INLINE

bool Valid(std::span<const std::byte> encoded, size_t floats) {
  constexpr auto none = std::byte{0x80};  // -128, which nothing is packed to
  for (size_t begin = 0, at = 0; begin < floats; begin += kBlock, at += kBlockBytes) {
    float step;
    std::memcpy(&step, &encoded[at], sizeof(step));
    if (step < 0 || step > std::numeric_limits<float>::max()) return false;
    const std::byte* const bytes = encoded.data() + at + sizeof(step);
    bool found = false;
    for (size_t i = 0; i < std::min(kBlock, floats - begin); ++i) found |= bytes[i] == none;
    if (found) return false;
  }
  return true;
}

template <typename Isa>
CodecFunctions FunctionsBy() {
  return {.encoded_bytes = EncodedBytes,
          .encode = Isa::Encode,
          .valid = Valid,
          .assign = Isa::template Apply<Assign>,
          .add = Isa::template Apply<Add>,
          .lose = Isa::template Apply<Lose>,
          .block = kBlock};
}

}  // namespace

CodecFunctions Int8Functions([[maybe_unused]] Instructions instructions) {
#ifdef __x86_64__
  if (instructions == Instructions::kFastest && __builtin_cpu_supports("avx2") != 0) {
    return FunctionsBy<Avx2>();
  }
#endif
  return FunctionsBy<Portable>();
}

}  // namespace poseidon
