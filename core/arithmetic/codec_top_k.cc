// The k floats of the largest magnitudes: k ascending uint32 indices, then their k values.
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "core/arithmetic/codec_functions.h"

namespace poseidon {
namespace {

using Index = uint32_t;
constexpr size_t kBytesKept = sizeof(Index) + sizeof(float);

size_t EncodedBytes(const Codec& spec, size_t floats) {
  CHECK_LE(floats, size_t{1} << 32U);  // or an index would not fit
  const double share = std::ceil(spec.top_k_share * static_cast<double>(floats));
  const size_t least = std::min<size_t>(floats, 1);
  return std::clamp(static_cast<size_t>(share), least, floats) * kBytesKept;
}

// Bits of a float without its sign: ordered as magnitudes are, with infinity and then NaN above
// all.
constexpr uint32_t kMagnitude = 0x7fffffff;

[[gnu::always_inline]] inline uint32_t Magnitude(float value) {
  return std::bit_cast<uint32_t>(value) & kMagnitude;
}

// Which of a group's floats have magnitudes from `lowest` up: bit i for the i-th.
constexpr size_t kGroup = 8;

[[gnu::always_inline]] inline uint32_t AtLeast(uint32_t lowest, const float* values, size_t count) {
  uint32_t which = 0;
  for (size_t i = 0; i < count; ++i) which |= (Magnitude(values[i]) >= lowest ? 1U : 0U) << i;
  return which;
}

struct Portable {
  static uint32_t AtLeastInGroup(uint32_t lowest, const float* group) {
    return AtLeast(lowest, group, kGroup);
  }
};

#ifdef __x86_64__
struct Avx2 {
  [[gnu::target("avx2")]] static uint32_t AtLeastInGroup(uint32_t lowest, const float* group) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(group));
    const __m256i magnitudes = _mm256_and_si256(bits, _mm256_set1_epi32(kMagnitude));
    // As signed numbers, which is all that it compares.
    const __m256i below =
        _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(lowest)), magnitudes);
    return 0xffU & ~static_cast<uint32_t>(_mm256_movemask_ps(_mm256_castsi256_ps(below)));
  }
};
#endif

// Calls visit(index, magnitude), in order, for the floats of magnitudes from `lowest` up. Quick
// where those are few.
template <typename Isa, typename Visit>
[[gnu::always_inline]] inline void EachAtLeast(uint32_t lowest, std::span<const float> values,
                                               Visit visit) {
  for (size_t begin = 0; begin < values.size(); begin += kGroup) {
    const float* group = &values[begin];
    const size_t size = std::min(kGroup, values.size() - begin);
    uint32_t which =
        size == kGroup ? Isa::AtLeastInGroup(lowest, group) : AtLeast(lowest, group, size);
    for (; which != 0; which &= which - 1) {
      const auto i = static_cast<size_t>(std::countr_zero(which));
      visit(begin + i, Magnitude(group[i]));
    }
  }
}

// A magnitude that probably has more than k floats above it, but not many more, judged by a sample;
// only how long the search takes depends on it.
uint32_t Guess(std::span<const float> values, size_t k) {
  // At most 8 KiB of sample, and so few that looking at them takes little of the time.
  constexpr size_t kLargestSample = 2048;
  const size_t size = std::min(kLargestSample, values.size() / 32);
  if (size == 0) return 0;
  std::array<uint32_t, kLargestSample> sample;
  const size_t step = values.size() / size;
  for (size_t i = 0; i < size; ++i) sample[i] = Magnitude(values[i * step]);
  // Twice what is expected, and 8 more for where that is few: too high once in 100,000 times.
  const size_t rank = 2 * k / step + 8;
  if (rank >= size) return 0;
  std::nth_element(sample.begin(), sample.begin() + rank, sample.begin() + size, std::greater<>());
  return sample[rank];
}

// How many magnitudes have which digit. Two counters a digit, used in turn: in gradients many
// floats are equal (0, most of all), and an addition to one counter would wait for the last one.
class Histogram {
 public:
  static constexpr unsigned kDigitBits = 11;

  void Count(size_t i, uint32_t digit) { ++counts_[i % 2][digit]; }

  // The largest digit with at least `wanted` magnitudes from it up; `wanted` loses those above the
  // digit. Nothing if there are fewer.
  std::optional<uint32_t> Find(size_t& wanted) const {
    for (uint32_t digit = 1U << kDigitBits; digit-- > 0;) {
      const size_t here = size_t{counts_[0][digit]} + counts_[1][digit];
      if (here >= wanted) return digit;
      wanted -= here;
    }
    return std::nullopt;
  }

 private:
  std::array<std::array<uint32_t, 1U << kDigitBits>, 2> counts_{};
};

// What is kept: all above `magnitude`, and the first `ties` of exactly that.
struct Threshold {
  uint32_t magnitude;
  size_t ties;
};

// The k-th largest magnitude, if it is `lowest` or more: digit by digit from the top, as a radix
// sort does. No memory but counters, and no worst case.
template <typename Isa>
[[gnu::always_inline]] inline std::optional<Threshold> FindThreshold(std::span<const float> values,
                                                                     size_t k, uint32_t lowest) {
  Threshold threshold{.magnitude = 0, .ties = k};
  unsigned above = 31;  // bits of a magnitude that are not known yet
  for (const unsigned bits : {Histogram::kDigitBits, 10U, 10U}) {
    const unsigned shift = above - bits;
    const uint32_t prefix = threshold.magnitude;
    Histogram histogram;
    EachAtLeast<Isa>(std::max(lowest, prefix << above), values, [&](size_t i, uint32_t magnitude) {
      if (magnitude >> above != prefix) return;
      histogram.Count(i, (magnitude >> shift) & ((1U << bits) - 1U));
    });
    const std::optional<uint32_t> digit = histogram.Find(threshold.ties);
    if (!digit) return std::nullopt;
    threshold.magnitude = prefix << bits | *digit;
    above = shift;
  }
  return threshold;
}

// Where a frame's k indices and values stand, at any alignment.
template <typename Byte>
struct Frame {
  explicit Frame(std::span<Byte> bytes)
      : kept(bytes.size() / kBytesKept),
        indices(bytes.data()),
        values(bytes.data() + kept * sizeof(Index)) {}

  Index index(size_t i) const {
    Index index;
    std::memcpy(&index, indices + i * sizeof(index), sizeof(index));
    return index;
  }
  float value(size_t i) const {
    float value;
    std::memcpy(&value, values + i * sizeof(value), sizeof(value));
    return value;
  }

  size_t kept;
  Byte* indices;
  Byte* values;
};

template <typename Isa>
[[gnu::always_inline]] inline void EncodeBy(std::span<const float> values,
                                            std::span<std::byte> out) {
  const Frame frame(out);
  if (frame.kept == 0) return;
  std::optional<Threshold> found =
      FindThreshold<Isa>(values, frame.kept, Guess(values, frame.kept));
  if (!found) found = FindThreshold<Isa>(values, frame.kept, 0);  // the guess was too high
  Threshold threshold = *found;
  size_t written = 0;
  EachAtLeast<Isa>(threshold.magnitude, values, [&](size_t i, uint32_t magnitude) {
    if (magnitude == threshold.magnitude) {
      if (threshold.ties == 0) return;
      --threshold.ties;
    }
    const auto index = static_cast<Index>(i);
    std::memcpy(frame.indices + written * sizeof(index), &index, sizeof(index));
    std::memcpy(frame.values + written * sizeof(float), &values[i], sizeof(float));
    ++written;
  });
  CHECK_EQ(written, frame.kept);
}

void EncodePortable(std::span<const float> values, std::span<std::byte> out) {
  EncodeBy<Portable>(values, out);
}

#ifdef __x86_64__
[[gnu::target("avx2,bmi")]] void EncodeAvx2(std::span<const float> values,
                                            std::span<std::byte> out) {
  EncodeBy<Avx2>(values, out);
}
#endif

bool Valid(std::span<const std::byte> encoded, size_t floats) {
  const Frame frame(encoded);
  bool ascending = true;
  for (size_t i = 1; i < frame.kept; ++i) ascending &= frame.index(i - 1) < frame.index(i);
  return frame.kept == 0 || (ascending && frame.index(frame.kept - 1) < floats);
}

template <typename Merge>
void Apply(std::span<const std::byte> encoded, std::span<float> x) {
  const Frame frame(encoded);
  for (size_t i = 0; i < frame.kept; ++i) {
    float& target = x[frame.index(i)];
    target = Merge::Merge(target, frame.value(i));
  }
}

void AssignTopK(std::span<const std::byte> encoded, std::span<float> x) {
  std::fill(x.begin(), x.end(), 0.0F);
  Apply<Assign>(encoded, x);
}

}  // namespace

CodecFunctions TopKFunctions(Instructions instructions) {
  CodecFunctions functions{.encoded_bytes = EncodedBytes,
                           .encode = EncodePortable,
                           .valid = Valid,
                           .assign = AssignTopK,
                           .add = Apply<Add>,
                           .lose = Apply<Lose>,
                           .block = 0};
#ifdef __x86_64__
  if (instructions == Instructions::kFastest && __builtin_cpu_supports("avx2") != 0 &&
      __builtin_cpu_supports("bmi") != 0) {
    functions.encode = EncodeAvx2;
  }
#endif
  return functions;
}

}  // namespace poseidon
