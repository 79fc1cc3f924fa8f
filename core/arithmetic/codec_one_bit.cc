// A bit a float, and two means a block for it to stand for.
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/arithmetic/codec_functions.h"

namespace poseidon {
namespace {

// Floats that share their means. The means, 8 bytes, add 6% to the 128 bytes of bits; in smaller
// blocks means would fit their values better and cost more. 4 KiB of floats stay in the first-level
// cache for all passes over them.
constexpr size_t kBlock = 1024;

// How a block begins. Its bits follow: float i's sign is bit i % 8 of byte i / 8. (So -0 is on the
// negative side, which no sum minds, and NaN on either.)
struct Means {
  float positive;  // of the floats without a sign; 0 if there are none
  float negative;  // likewise
};

size_t BlockBytes(size_t floats) { return sizeof(Means) + (floats + 7) / 8; }

size_t EncodedBytes(const Codec& /*spec*/, size_t floats) {
  const size_t rest = floats % kBlock;
  return floats / kBlock * BlockBytes(kBlock) + (rest > 0 ? BlockBytes(rest) : 0);
}

// Calls visit(where the block's bytes begin, where its floats begin, how many floats) for each
// block until one returns false; returns whether none did.
template <typename Visit>
bool EachBlock(size_t floats, Visit visit) {
  for (size_t begin = 0; begin < floats; begin += kBlock) {
    const size_t at = begin / kBlock * BlockBytes(kBlock);
    if (!visit(at, begin, std::min(kBlock, floats - begin))) return false;
  }
  return true;
}

// Four floats at once, by the compilers' vector types: on a processor without them that is four
// instructions, so sums are taken in one order on every machine. No selection has a branch, which
// random signs would mispredict.
constexpr size_t kLanes = 4;
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(kLanes * sizeof(int32_t))));

// What MeansOf has seen so far, in lanes.
struct Sums {
  Floats positive = {};
  Floats negative = {};
  Ints negative_count = {};  // with a minus sign
};

void AddTo(Sums& sums, const float* x) {
  Ints bits;
  std::memcpy(&bits, x, sizeof(bits));
  const Ints mask = bits >> 31;  // all ones for a negative float
  sums.positive += reinterpret_cast<Floats>(bits & ~mask);
  sums.negative += reinterpret_cast<Floats>(bits & mask);
  sums.negative_count += mask;
}

Means MeansOf(const float* x, size_t count) {
  // Several, as one addition takes as long as the rest of AddTo for four vectors.
  constexpr size_t kSums = 4;
  std::array<Sums, kSums> sums;
  size_t i = 0;
  for (; i + kSums * kLanes <= count; i += kSums * kLanes) {
    for (size_t j = 0; j < kSums; ++j) AddTo(sums[j], x + i + j * kLanes);
  }
  // What is left is filled up with 0, which adds nothing.
  for (; i < count; i += kLanes) {
    std::array<float, kLanes> rest{};
    std::copy_n(x + i, std::min(kLanes, count - i), rest.begin());
    AddTo(sums[0], rest.data());
  }
  double positive = 0, negative = 0;
  size_t negative_count = 0;
  for (const Sums& s : sums) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      positive += s.positive[lane];
      negative += s.negative[lane];
      negative_count -= s.negative_count[lane];
    }
  }
  const auto mean = [](double sum, size_t of) {
    return of == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(of));
  };
  return {mean(positive, count - negative_count), mean(negative, negative_count)};
}

std::byte SignsOf(const float* x, size_t count) {
  uint32_t signs = 0;
  for (size_t i = 0; i < count; ++i) signs |= std::bit_cast<uint32_t>(x[i]) >> 31U << i;
  return static_cast<std::byte>(signs);
}

std::byte SignsOfEight(const float* x) {
#ifdef __SSE2__
  return static_cast<std::byte>(_mm_movemask_ps(_mm_loadu_ps(x)) |
                                _mm_movemask_ps(_mm_loadu_ps(x + 4)) << 4U);
#else
  return SignsOf(x, 8);
#endif
}

void Encode(std::span<const float> values, std::span<std::byte> out) {
  EachBlock(values.size(), [&](size_t at, size_t begin, size_t count) {
    const float* x = &values[begin];
    const Means means = MeansOf(x, count);
    std::memcpy(&out[at], &means, sizeof(means));
    std::byte* signs = &out[at + sizeof(means)];
    size_t i = 0;
    for (; i + 8 <= count; i += 8) signs[i / 8] = SignsOfEight(x + i);
    if (i < count) signs[i / 8] = SignsOf(x + i, count - i);
    return true;
  });
}

// The block's floats, up to a whole byte of them.
void DecodeBlock(const std::byte* encoded, size_t count, float* out) {
  Means means;
  std::memcpy(&means, encoded, sizeof(means));
  const auto positive = reinterpret_cast<Ints>(means.positive - Floats{});
  const auto negative = reinterpret_cast<Ints>(means.negative - Floats{});
  const Ints bits[] = {{1, 2, 4, 8}, {16, 32, 64, 128}};
  for (size_t i = 0; i < count; i += 8) {
    const auto signs = static_cast<int32_t>(encoded[sizeof(means) + i / 8]);
    for (size_t half = 0; half < 2; ++half) {
      const Ints mask = (signs & bits[half]) == bits[half];
      const Ints floats = (negative & mask) | (positive & ~mask);
      std::memcpy(out + i + half * kLanes, &floats, sizeof(floats));
    }
  }
}

// Decoded floats go through a buffer, so that a plain loop merges them.
template <typename Merge>
void Apply(std::span<const std::byte> encoded, std::span<float> x) {
  EachBlock(x.size(), [&](size_t at, size_t begin, size_t count) {
    std::array<float, kBlock> decoded;
    DecodeBlock(&encoded[at], count, decoded.data());
    for (size_t i = 0; i < count; ++i) x[begin + i] = Merge::Merge(x[begin + i], decoded[i]);
    return true;
  });
}

bool Valid(std::span<const std::byte> encoded, size_t floats) {
  return EachBlock(floats, [&](size_t at, size_t /*begin*/, size_t count) {
    Means means;
    std::memcpy(&means, &encoded[at], sizeof(means));
    if (means.positive < 0 || means.negative > 0) return false;
    const auto last = static_cast<unsigned>(encoded[at + BlockBytes(count) - 1]);
    return count % 8 == 0 || last >> (count % 8) == 0;
  });
}

}  // namespace

CodecFunctions OneBitFunctions() {
  return {.encoded_bytes = EncodedBytes,
          .encode = Encode,
          .valid = Valid,
          .assign = Apply<Assign>,
          .add = Apply<Add>,
          .lose = Apply<Lose>,
          .block = kBlock};
}

}  // namespace poseidon
