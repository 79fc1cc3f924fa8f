// What the tests of codecs share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "core/arithmetic/codec.h"

namespace poseidon {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

inline const Codec kFp32{CodecType::kFp32};
inline const Codec kFp16{CodecType::kFp16};
inline const Codec kBf16{CodecType::kBf16};
inline const Codec kOneBit{CodecType::kOneBit};
inline const Codec kTopK{CodecType::kTopK, 0.1};
inline const Codec kInt8{CodecType::kInt8};
inline const Codec kAll[] = {kFp32, kFp16, kBf16, kOneBit, kTopK, {CodecType::kTopK, 1}, kInt8};

// None, one, primes, and both sides of vectors, bytes of bits, buffers and blocks.
inline const size_t kSizes[] = {0,  1,   2,   3,    7,    8,    9,    15,   16,   17,   31,   61,
                                97, 255, 256, 1021, 1023, 1024, 1025, 2047, 2049, 4099, 10007};

// As gradients are: small and large ones, some 0, many equal. None overflows fp16.
inline Floats RandomFloats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> value;
  Floats floats(count);
  for (float& f : floats) {
    f = std::exp(1.5F * value(random)) * value(random);
    if (random() % 4 == 0) f = random() % 2 == 0 ? 0.0F : -0.5F;
  }
  return floats;
}

inline Bytes Encoded(const Codec& spec, const Floats& values) {
  Bytes bytes(EncodedBytes(spec, static_cast<int64_t>(values.size())));
  Encode(spec, values, {}, bytes);
  return bytes;
}

inline Floats Decoded(const Codec& spec, std::span<const std::byte> bytes, size_t count) {
  Floats floats(count, kNan);
  EXPECT_TRUE(Decode(spec, bytes, floats));
  return floats;
}

inline bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](float x, float y) {
           return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
         });
}

}  // namespace poseidon
