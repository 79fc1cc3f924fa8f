#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/int8.h"
#include "tests/unit/core/arithmetic/codec_testing.h"

namespace poseidon {
namespace {

float LargestOf(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

TEST(Int8Codec, SizesAreAByteAFloatAndAStepABlock) {
  EXPECT_EQ(EncodedBytes(kInt8, 1), 5U);
  EXPECT_EQ(EncodedBytes(kInt8, 256), 260U);
  EXPECT_EQ(EncodedBytes(kInt8, 257), 260U + 5U);
  EXPECT_EQ(EncodedBytes(kInt8, 1 << 20), (1U << 20) + 4U * 4096);
}

// Each block by its own largest, whatever the others hold.
TEST(Int8Codec, LosesHalfAStepOfItsBlockAtMost) {
  std::mt19937 random(11);
  for (const size_t size : kSizes) {
    Floats values = RandomFloats(size, random);
    for (size_t i = 0; i < size; ++i) {
      values[i] *= std::ldexp(1.0F, static_cast<int>(i / Int8::kBlock % 5) * 40 - 80);
    }
    const Floats decoded = Decoded(kInt8, Encoded(kInt8, values), size);
    for (size_t begin = 0; begin < size; begin += Int8::kBlock) {
      const auto block = std::span(values).subspan(begin, std::min(Int8::kBlock, size - begin));
      const float half_a_step = LargestOf(block) / 127 / 2;
      for (size_t i = 0; i < block.size(); ++i) {
        // 1/127 and the product are rounded, each by 2^-24 of at most 127 steps.
        ASSERT_NEAR(decoded[begin + i], block[i], half_a_step * (1 + 4 * 127 * 0x1p-24F))
            << "float " << begin + i << " of " << size;
        if (block[i] == 0) {
          ASSERT_EQ(decoded[begin + i], 0);
        }
      }
    }
  }
}

TEST(Int8Codec, AnExampleByHand) {
  const Floats values = {127, -127, 1, 0.5F, 1.5F, -2.5F, 0.49F, 0};
  Floats residual(8, 0);
  Bytes bytes(EncodedBytes(kInt8, 8));
  Encode(kInt8, values, residual, bytes);
  float step = 0;
  std::memcpy(&step, bytes.data(), sizeof(step));
  EXPECT_EQ(step, 1);
  // Ties go to the even one.
  EXPECT_EQ(Decoded(kInt8, bytes, 8), Floats({127, -127, 1, 0, 2, -2, 0, 0}));
  EXPECT_EQ(residual, Floats({0, 0, 0, 0.5F, -0.5F, -0.5F, 0.49F, 0}));
}

TEST(Int8Codec, PortableAndFastestInstructionsGiveTheSameBits) {
  std::mt19937 random(12);
  const CodecFunctions portable = Int8Functions(Instructions::kPortable);
  const CodecFunctions fastest = Int8Functions(Instructions::kFastest);
  for (const size_t size : kSizes) {
    const Floats values = RandomFloats(size, random);
    Bytes bytes(EncodedBytes(kInt8, static_cast<int64_t>(size))), same = bytes;
    portable.encode(values, bytes);
    fastest.encode(values, same);
    ASSERT_EQ(bytes, same) << size;
    for (const auto merge :
         {&CodecFunctions::assign, &CodecFunctions::add, &CodecFunctions::lose}) {
      Floats one = RandomFloats(size, random), other = one;
      (portable.*merge)(bytes, one);
      (fastest.*merge)(bytes, other);
      ASSERT_TRUE(SameBits(one, other)) << size;
    }
  }
}

// Up to the largest float, and down to those below all normal ones, nothing becomes infinite, and
// what can't be sent stays in the residual.
TEST(Int8Codec, AnyFiniteFloatsArePacked) {
  std::mt19937 random(13);
  for (int exponent = -149; exponent <= 128; ++exponent) {
    Floats values = RandomFloats(Int8::kBlock, random);
    const float largest =
        exponent == 128 ? std::numeric_limits<float>::max() : std::ldexp(1.0F, exponent);
    const float scale = LargestOf(values);
    for (float& value : values) value = value / scale * largest;
    Floats residual(values.size());
    Bytes bytes(EncodedBytes(kInt8, static_cast<int64_t>(values.size())));
    Encode(kInt8, values, residual, bytes);
    const Floats decoded = Decoded(kInt8, bytes, values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << exponent;
      ASSERT_EQ(residual[i], values[i] - decoded[i]) << exponent;
    }
  }
}

TEST(Int8Codec, DivergedValuesShowAndLeaveTheResidualFinite) {
  for (const float diverged : {kNan, kInfinity, -kInfinity}) {
    Floats values(2 * Int8::kBlock, 127), residual(values.size(), 0);
    values[3] = diverged;
    Bytes bytes(EncodedBytes(kInt8, static_cast<int64_t>(values.size())));
    Encode(kInt8, values, residual, bytes);
    const Floats decoded = Decoded(kInt8, bytes, values.size());
    EXPECT_TRUE(std::isnan(decoded[3]));
    EXPECT_TRUE(std::isnan(decoded[4]));
    EXPECT_EQ(decoded[Int8::kBlock], 127);  // another block
    for (const float f : residual) ASSERT_TRUE(std::isfinite(f));
  }
}

TEST(Int8Codec, RefusesStepsAndBytesThatNothingIsPackedTo) {
  const Bytes good = Encoded(kInt8, {1, -1, 0.25F});
  Floats out(3);
  ASSERT_TRUE(Decode(kInt8, good, out));
  for (const float step : {-1.0F, kInfinity, -kInfinity}) {
    Bytes bad = good;
    std::memcpy(bad.data(), &step, sizeof(step));
    EXPECT_FALSE(Decode(kInt8, bad, out)) << step;
  }
  Bytes bad = good;
  bad.back() = std::byte{0x80};
  EXPECT_FALSE(Decode(kInt8, bad, out));
}

}  // namespace
}  // namespace poseidon
