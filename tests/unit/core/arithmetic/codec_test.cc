#include "core/arithmetic/codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "core/arithmetic/codec_functions.h"
#include "core/error.h"
#include "tests/unit/core/arithmetic/codec_testing.h"

namespace poseidon {
namespace {

// --- All codecs ---

TEST(Codec, SizesAreFixed) {
  for (const Codec& spec : kAll) EXPECT_EQ(EncodedBytes(spec, 0), 0U);
  EXPECT_EQ(EncodedBytes(kFp32, 1000), 4000U);
  EXPECT_EQ(EncodedBytes(kFp16, 1001), 2002U);
  EXPECT_EQ(EncodedBytes(kBf16, 1001), 2002U);
  EXPECT_EQ(EncodedBytes(kOneBit, 1), 9U);
  EXPECT_EQ(EncodedBytes(kOneBit, 9), 10U);
  EXPECT_EQ(EncodedBytes(kOneBit, 1024), 136U);
  EXPECT_EQ(EncodedBytes(kOneBit, 1025), 136U + 9U);
  EXPECT_EQ(EncodedBytes(kOneBit, 4096), 4 * 136U);
  EXPECT_EQ(EncodedBytes(kInt8, 257), 265U);
  EXPECT_EQ(EncodedBytes(kTopK, 1), 8U);
  EXPECT_EQ(EncodedBytes(kTopK, 10), 8U);
  EXPECT_EQ(EncodedBytes(kTopK, 11), 16U);
  EXPECT_EQ(EncodedBytes({CodecType::kTopK, 1}, 11), 88U);
  EXPECT_EQ(EncodedBytes({CodecType::kTopK, 1e-9}, 1000), 8U);
  // No allocation: sizes of phantoms may be large.
  EXPECT_EQ(EncodedBytes(kFp16, int64_t{1} << 40), size_t{1} << 41);
}

TEST(Codec, AddDecodedAddsWhatDecodeGivesAtAnyAlignment) {
  std::mt19937 random(1);
  for (const Codec& spec : kAll) {
    for (size_t size : kSizes) {
      const Bytes bytes = Encoded(spec, RandomFloats(size, random));
      const Floats decoded = Decoded(spec, bytes, size);
      const Floats start = RandomFloats(size, random);
      Floats expected = start;
      for (size_t i = 0; i < size; ++i) {
        // Floats that kTopK leaves out are not touched; adding 0 changes no bits but those of -0.
        if (decoded[i] != 0) expected[i] += decoded[i];
      }
      for (size_t offset : {0, 1, 2, 3, 5}) {
        Bytes shifted(offset);
        shifted.insert(shifted.end(), bytes.begin(), bytes.end());
        const auto view = std::span<const std::byte>(shifted).subspan(offset);
        EXPECT_TRUE(SameBits(Decoded(spec, view, size), decoded));
        Floats accumulator = start;
        EXPECT_TRUE(AddDecoded(spec, view, accumulator));
        EXPECT_EQ(accumulator, expected) << static_cast<int>(spec.type) << ", size " << size;
      }
    }
  }
}

TEST(Codec, ErrorFeedbackLosesNothingOverIterations) {
  std::mt19937 random(2);
  for (const Codec& spec : kAll) {
    for (size_t size : {1, 17, 1025, 3001}) {
      Floats residual(size, 0);
      std::vector<double> given(size), taken(size), magnitude(size);
      Bytes bytes(EncodedBytes(spec, static_cast<int64_t>(size)));
      for (int iteration = 0; iteration < 50; ++iteration) {
        const Floats values = RandomFloats(size, random);
        Encode(spec, values, residual, bytes);
        const Floats decoded = Decoded(spec, bytes, size);
        for (size_t i = 0; i < size; ++i) {
          given[i] += values[i];
          taken[i] += decoded[i];
          magnitude[i] += std::abs(values[i]) + std::abs(decoded[i]) + std::abs(residual[i]);
        }
      }
      for (size_t i = 0; i < size; ++i) {
        // Each iteration rounds values + residual and what is lost of it once.
        ASSERT_NEAR(taken[i] + residual[i], given[i], 1.2e-7 * magnitude[i])
            << static_cast<int>(spec.type) << ", size " << size << ", float " << i;
      }
    }
  }
}

TEST(Codec, FeedbackEncodesTheSumAndKeepsTheLoss) {
  std::mt19937 random(3);
  for (const Codec& spec : kAll) {
    for (size_t size : kSizes) {
      const Floats values = RandomFloats(size, random);
      Floats residual = RandomFloats(size, random);
      Floats corrected = values;
      for (size_t i = 0; i < size; ++i) corrected[i] += residual[i];
      Bytes bytes(EncodedBytes(spec, static_cast<int64_t>(size)));
      Encode(spec, values, residual, bytes);
      ASSERT_EQ(bytes, Encoded(spec, corrected)) << static_cast<int>(spec.type) << ", " << size;
      const Floats decoded = Decoded(spec, bytes, size);
      for (size_t i = 0; i < size; ++i) ASSERT_EQ(residual[i], corrected[i] - decoded[i]);
    }
  }
}

// Frames of random bytes and of wrong sizes: refused, or decoded to something; never a crash or a
// write beyond the floats.
TEST(Codec, ForeignBytesDoNoHarm) {
  std::mt19937 random(4);
  for (const Codec& spec : kAll) {
    for (size_t size : {0, 1, 2, 9, 1025}) {
      const size_t right = EncodedBytes(spec, static_cast<int64_t>(size));
      for (size_t wrong : {right + 1, right + 8, right == 0 ? 1 : right - 1}) {
        Floats floats(size, 7);
        EXPECT_FALSE(Decode(spec, Bytes(wrong), floats));
        EXPECT_FALSE(AddDecoded(spec, Bytes(wrong), floats));
        EXPECT_THAT(floats, testing::Each(7));
      }
      for (int trial = 0; trial < 200; ++trial) {
        Bytes bytes(right);
        for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
        Floats guarded(size + 2, 7);
        const bool good = Decode(spec, bytes, std::span(guarded).subspan(1, size));
        if (!good) {
          EXPECT_THAT(guarded, testing::Each(7));
        }
        EXPECT_EQ(AddDecoded(spec, bytes, std::span(guarded).subspan(1, size)), good);
        EXPECT_EQ(guarded.front(), 7);
        EXPECT_EQ(guarded.back(), 7);
      }
    }
  }
}

TEST(Codec, ValidateRefusesAShareThatCannotBe) {
  EXPECT_NO_THROW(Validate(kTopK));
  EXPECT_NO_THROW(Validate({CodecType::kTopK, 1}));
  for (double share : {0.0, -0.1, 1.1, std::nan("")}) {
    EXPECT_THROW(Validate({CodecType::kTopK, share}), ConfigError) << share;
  }
}

TEST(CodecDeathTest, SpansThatDoNotFitEndTheProgram) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Floats two(2), three(3);
  Bytes bytes(6);
  EXPECT_DEATH(Encode(kFp16, two, {}, bytes), "Check failed: out.size\\(\\)");
  EXPECT_DEATH(Encode(kFp16, three, two, bytes), "Check failed: residual.size\\(\\)");
  EXPECT_DEATH(Round(kOneBit, two), "Check failed");
  EXPECT_DEATH(EncodedBytes(kFp16, -1), "Check failed: floats");
}

// --- 1-bit ---

TEST(OneBit, DecodesToTheMeanOfTheBlocksSide) {
  std::mt19937 random(8);
  for (size_t size : kSizes) {
    const Floats values = RandomFloats(size, random);
    const Floats decoded = Decoded(kOneBit, Encoded(kOneBit, values), size);
    for (size_t begin = 0; begin < size; begin += 1024) {
      const size_t end = std::min(size, begin + 1024);
      double sums[2] = {}, magnitude = 0;
      int counts[2] = {};
      for (size_t i = begin; i < end; ++i) {
        sums[values[i] < 0] += values[i];
        ++counts[values[i] < 0];
        magnitude = std::max<double>(magnitude, std::abs(values[i]));
      }
      for (size_t i = begin; i < end; ++i) {
        const bool negative = values[i] < 0;
        // 64 floats a lane are added in float.
        ASSERT_NEAR(decoded[i], sums[negative] / counts[negative], 64 * 6e-8 * magnitude) << i;
      }
    }
  }
}

TEST(OneBit, AnExampleByHand) {
  const Floats values = {1, -2, 3, -6, 0.5F, 0, 0, 0, 0};
  Floats residual(9, 0);
  Bytes bytes(EncodedBytes(kOneBit, 9));
  Encode(kOneBit, values, residual, bytes);
  const float mean = 4.5F / 7;
  EXPECT_EQ(Decoded(kOneBit, bytes, 9), Floats({mean, -4, mean, -4, mean, mean, mean, mean, mean}));
  EXPECT_EQ(bytes[8], std::byte{0b00001010});
  EXPECT_EQ(residual[1], 2);
  EXPECT_EQ(residual[3], -2);
}

TEST(OneBit, DivergedValuesShowAndLeaveTheResidualFinite) {
  Floats values(2048, 1), residual(2048, 0);
  values[3] = kNan;
  values[4] = kInfinity;
  Bytes bytes(EncodedBytes(kOneBit, 2048));
  Encode(kOneBit, values, residual, bytes);
  const Floats decoded = Decoded(kOneBit, bytes, 2048);
  EXPECT_FALSE(std::isfinite(decoded[3]));
  EXPECT_EQ(decoded[1024], 1);  // another block
  for (float f : residual) ASSERT_TRUE(std::isfinite(f));
}

TEST(OneBit, RefusesMeansOnTheWrongSideAndBitsBehindTheLastFloat) {
  const Bytes good = Encoded(kOneBit, {1, -1, 1});
  Floats out(3);
  ASSERT_TRUE(Decode(kOneBit, good, out));
  Bytes bad = good;
  bad.back() |= std::byte{0b1000};
  EXPECT_FALSE(Decode(kOneBit, bad, out));
  bad = good;
  std::swap_ranges(bad.begin(), bad.begin() + 4, bad.begin() + 4);
  EXPECT_FALSE(Decode(kOneBit, bad, out));
}

// --- Top-k ---

// By sorting all: ties by the lower index.
Floats KeepLargest(const Floats& values, size_t k) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return std::abs(values[a]) > std::abs(values[b]); });
  Floats kept(values.size(), 0);
  for (size_t i = 0; i < k; ++i) kept[order[i]] = values[order[i]];
  return kept;
}

TEST(TopK, KeepsTheLargestAndOfEqualOnesTheFirst) {
  std::mt19937 random(9);
  for (size_t size : kSizes) {
    for (double share : {0.001, 0.01, 0.3, 1.0}) {
      const Codec spec{CodecType::kTopK, share};
      const size_t k = EncodedBytes(spec, static_cast<int64_t>(size)) / 8;
      const Floats random_floats = RandomFloats(size, random);
      // Almost all equal, so that the threshold is a tie; all 0; and large ones where the encoder
      // takes its sample, every 32nd float, so that it expects more of them than there are.
      Floats equal(size, -2), zeros(size, 0), periodic(size, 1e-30F);
      for (float& f : equal) f = random() % 50 == 0 ? 3.0F : random() % 2 == 0 ? 2.0F : -2.0F;
      for (size_t i = 0; i < size; i += 32) periodic[i] = static_cast<float>(i + 1);
      for (const Floats& values : {random_floats, equal, zeros, periodic}) {
        ASSERT_EQ(Decoded(spec, Encoded(spec, values), size), KeepLargest(values, k))
            << "size " << size << ", share " << share;
      }
    }
  }
}

TEST(TopK, IndicesAscendAndValuesFollow) {
  const Bytes bytes = Encoded({CodecType::kTopK, 0.5}, {1, -5, 2, 4});
  const uint32_t indices[] = {1, 3};
  float values[2] = {};
  ASSERT_EQ(bytes.size(), 16U);
  EXPECT_EQ(std::memcmp(bytes.data(), indices, 8), 0);
  std::memcpy(values, bytes.data() + 8, 8);
  EXPECT_THAT(values, testing::ElementsAre(-5, 4));
}

TEST(TopK, PortableAndFastestInstructionsGiveTheSameBits) {
  std::mt19937 random(10);
  for (size_t size : kSizes) {
    const Floats values = RandomFloats(size, random);
    Bytes portable(EncodedBytes(kTopK, static_cast<int64_t>(size)));
    TopKFunctions(Instructions::kPortable).encode(values, portable);
    EXPECT_EQ(portable, Encoded(kTopK, values));
  }
}

TEST(TopK, InfinityAndNanCountAsTheLargest) {
  Floats values(10'000, 1), residual(10'000, 0);
  values[5000] = kNan;
  values[7000] = -kInfinity;
  const Codec spec{CodecType::kTopK, 0.0002};
  Bytes bytes(EncodedBytes(spec, 10'000));
  Encode(spec, values, residual, bytes);
  const Floats decoded = Decoded(spec, bytes, 10'000);
  EXPECT_TRUE(std::isnan(decoded[5000]));
  EXPECT_EQ(decoded[7000], -kInfinity);
  EXPECT_EQ(residual[5000], 0);
  EXPECT_EQ(residual[7000], 0);
  EXPECT_EQ(residual[0], 1);
}

TEST(TopK, RefusesIndicesThatDoNotAscendOrAreTooLarge) {
  const Codec spec{CodecType::kTopK, 0.5};
  const auto decodes = [&](uint32_t first, uint32_t second) {
    const uint32_t frame[] = {first, second, 0, 0};
    Floats out(4, 7);
    const bool good = Decode(spec, std::as_bytes(std::span(frame)), out);
    if (!good) {
      EXPECT_THAT(out, testing::Each(7));
    }
    return good;
  };
  EXPECT_TRUE(decodes(0, 3));
  EXPECT_FALSE(decodes(0, 4));
  EXPECT_FALSE(decodes(0, 0xffffffff));
  EXPECT_FALSE(decodes(2, 2));
  EXPECT_FALSE(decodes(3, 1));
  EXPECT_FALSE(decodes(0xffffffff, 1));
}

}  // namespace
}  // namespace poseidon
