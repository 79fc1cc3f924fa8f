// fp16 and bf16; codec_test.cc has what holds for all codecs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "core/arithmetic/codec.h"
#include "core/arithmetic/codec_functions.h"
#include "tests/unit/core/arithmetic/codec_testing.h"

namespace poseidon {
namespace {

// A format's values by the definition of IEEE 754, for any width of exponent and mantissa.
struct HalfFormat {
  int exponent_bits;
  int mantissa_bits;

  double ValueOf(uint16_t half) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int exponent = (half & 0x7fff) >> mantissa_bits;
    const int mantissa = half & ((1 << mantissa_bits) - 1);
    const double sign = (half & 0x8000) != 0 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * INFINITY : NAN;
    const int implicit = exponent == 0 ? 0 : 1 << mantissa_bits;
    return sign * std::ldexp(implicit + mantissa, std::max(exponent, 1) - bias - mantissa_bits);
  }

  // The half closest to a number that is not NaN; the even one of two. Beyond the largest finite
  // half the next step of the grid stands for infinity.
  uint16_t Nearest(double value) const {
    const auto infinity = static_cast<uint16_t>(((1 << exponent_bits) - 1) << mantissa_bits);
    const double largest_step = ValueOf(infinity - 1) - ValueOf(infinity - 2);
    const auto at = [&](uint16_t half) {
      return half == infinity ? ValueOf(infinity - 1) + largest_step : ValueOf(half);
    };
    const double magnitude = std::min(std::abs(value), at(infinity));
    // The largest half not above the magnitude.
    uint16_t low = 0, high = infinity;
    while (low < high) {
      const auto middle = static_cast<uint16_t>((low + high + 1) / 2);
      if (at(middle) <= magnitude) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    uint16_t nearest = low;
    if (low < infinity) {
      const double below = magnitude - at(low), above = at(low + 1) - magnitude;
      if (above < below || (above == below && low % 2 == 1)) nearest = low + 1;
    }
    return nearest | (std::signbit(value) ? 0x8000 : 0);
  }
};

struct HalfCase {
  Codec spec;
  HalfFormat format;
  CodecFunctions (*functions)(Instructions);
};
const HalfCase kHalves[] = {{kFp16, {5, 10}, Fp16Functions}, {kBf16, {8, 7}, Bf16Functions}};

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> halves(65536);
  std::iota(halves.begin(), halves.end(), 0);
  return halves;
}

std::span<const std::byte> BytesOf(const std::vector<uint16_t>& halves) {
  return std::as_bytes(std::span(halves));
}

std::vector<uint16_t> HalvesOf(const CodecFunctions& functions, const Floats& values) {
  std::vector<uint16_t> halves(values.size());
  functions.encode(values, std::as_writable_bytes(std::span(halves)));
  return halves;
}

// Random bits, and numbers at and beside the middle between two halves.
Floats FloatsToRound(const HalfFormat& format, std::mt19937& random) {
  Floats floats = {0.0F,   -0.0F,         65504,   65519.996F, 65520,     65536,
                   -65520, 3.3895314e38F, 3.4e38F, kInfinity,  -kInfinity};
  for (int i = 0; i < 200'000; ++i)
    floats.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  for (uint16_t half = 0; half < 0x7fff; ++half) {
    const double low = format.ValueOf(half), high = format.ValueOf(half + 1);
    if (!std::isfinite(high)) continue;
    const auto middle = static_cast<float>((low + high) / 2);
    for (float f : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kInfinity)}) {
      floats.push_back(random() % 2 == 0 ? f : -f);
    }
  }
  return floats;
}

TEST(HalfCodecs, EveryHalfIsWhatTheFormatSays) {
  const std::vector<uint16_t> halves = AllHalves();
  for (const HalfCase& half_case : kHalves) {
    const Floats floats = Decoded(half_case.spec, BytesOf(halves), halves.size());
    const Bytes again = Encoded(half_case.spec, floats);
    for (size_t i = 0; i < halves.size(); ++i) {
      const double expected = half_case.format.ValueOf(halves[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(floats[i])) << i;
      } else {
        ASSERT_EQ(floats[i], expected) << i;
        ASSERT_EQ(std::signbit(floats[i]), std::signbit(expected)) << i;
        // And encoded again it is itself.
        ASSERT_EQ(std::memcmp(&again[2 * i], &halves[i], 2), 0) << i;
      }
    }
  }
}

TEST(HalfCodecs, RoundToTheNearestAndTiesToEven) {
  std::mt19937 random(5);
  for (const HalfCase& half_case : kHalves) {
    const Floats floats = FloatsToRound(half_case.format, random);
    const std::vector<uint16_t> halves =
        HalvesOf(half_case.functions(Instructions::kFastest), floats);
    for (size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) {
        ASSERT_TRUE(std::isnan(half_case.format.ValueOf(halves[i]))) << i;
      } else {
        ASSERT_EQ(halves[i], half_case.format.Nearest(floats[i])) << floats[i];
      }
    }
  }
}

TEST(HalfCodecs, PortableAndFastestInstructionsGiveTheSameBits) {
  std::mt19937 random(6);
  const std::vector<uint16_t> halves = AllHalves();
  for (const HalfCase& half_case : kHalves) {
    const CodecFunctions portable = half_case.functions(Instructions::kPortable);
    const CodecFunctions fastest = half_case.functions(Instructions::kFastest);
    const Floats floats = FloatsToRound(half_case.format, random);
    EXPECT_EQ(HalvesOf(portable, floats), HalvesOf(fastest, floats));
    for (auto apply : {&CodecFunctions::assign, &CodecFunctions::add, &CodecFunctions::lose}) {
      Floats one(halves.size(), 0.25F), two = one;
      (portable.*apply)(BytesOf(halves), one);
      (fastest.*apply)(BytesOf(halves), two);
      EXPECT_TRUE(SameBits(one, two));
    }
    for (size_t size = 0; size < 40; ++size) {  // all remainders of a vector
      const Floats few(floats.begin() + 7, floats.begin() + 7 + size);
      EXPECT_EQ(HalvesOf(portable, few), HalvesOf(fastest, few));
    }
  }
}

TEST(HalfCodecs, RoundedValuesSurviveFurtherHops) {
  std::mt19937 random(7);
  for (const Codec& spec : {kFp16, kBf16, kFp32}) {
    for (size_t size : kSizes) {
      const Floats values = RandomFloats(size, random);
      Floats rounded = values;
      Round(spec, rounded);
      EXPECT_TRUE(SameBits(rounded, Decoded(spec, Encoded(spec, values), size)));
      EXPECT_TRUE(SameBits(rounded, Decoded(spec, Encoded(spec, rounded), size)));
    }
  }
}

TEST(HalfCodecs, AResidualStaysFiniteWhereAFloatOverflows) {
  Floats residual = {0, 0, 0, 0};
  Bytes bytes(8);
  Encode(kFp16, Floats{1e6F, -kInfinity, kNan, 1}, residual, bytes);
  const Floats decoded = Decoded(kFp16, bytes, 4);
  EXPECT_EQ(decoded[0], kInfinity);
  EXPECT_EQ(decoded[1], -kInfinity);
  EXPECT_TRUE(std::isnan(decoded[2]));
  EXPECT_EQ(decoded[3], 1);
  EXPECT_THAT(residual, testing::Each(0));
}

}  // namespace
}  // namespace poseidon
