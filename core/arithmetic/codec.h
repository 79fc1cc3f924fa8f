// How floats are packed on the wire, to send fewer bytes than 4 a float. Sums are always float32.
//
//   kFp32    as they are                                                   4 bytes a float
//   kFp16    IEEE 754 binary16, rounded to nearest, ties to even           2 bytes a float
//   kBf16    the upper half of a float, rounded likewise                   2 bytes a float
//   kInt8    a byte a float, and for each block of 256 the step that a      260 bytes a block
//            byte counts, the 127th part of its largest magnitude
//   kOneBit  the sign, a bit a float, and for each block of 1024 the       136 bytes a block
//            means of its positive and of its negative values, which the
//            bits stand for (Seide et al. 2014, "1-Bit Stochastic Gradient
//            Descent", as in CNTK, with blocks for a matrix's columns)
//   kTopK    the share of the floats with the largest magnitudes, as       8 bytes a float kept
//            ascending uint32 indices, then their values
//
// kOneBit and kTopK lose most of what they are given and only train a net with error feedback: the
// caller keeps, for each float that it sends, a residual that Encode adds to the next values. kInt8
// loses half a step at most, but small floats beside large ones are below that for as long as they
// are, so it has a residual, too.
//
// All functions are pure: any thread may call them on memory that no other thread touches
// meanwhile. They allocate nothing. Encoded bytes are in host byte order and at any alignment.
// Foreign bytes are refused by a return value; spans whose sizes don't belong together are the
// caller's bug and end the program.
//
// NaN and infinity pass through as far as a codec can carry them, so that a training that diverges
// looks so under every codec: kInt8 makes the values of their block NaN, kOneBit those of their
// block and side NaN or infinite, kTopK counts them as the largest. What overflows kFp16 becomes
// infinite. A residual stays finite unless more than kTopK's share of the values is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace poseidon {

enum class CodecType { kFp32, kFp16, kBf16, kOneBit, kTopK, kInt8 };

struct Codec {
  CodecType type = CodecType::kFp32;
  // kTopK: share of the floats that is sent, rounded up to whole floats and at least one. Aji and
  // Heafield 2017 ("Sparse Communication for Distributed Gradient Descent") keep 0.01.
  double top_k_share = 0.01;
};

// Whether so much of what it is given is lost that the caller has to keep a residual.
constexpr bool NeedsErrorFeedback(const Codec& codec) {
  return codec.type == CodecType::kOneBit || codec.type == CodecType::kTopK ||
         codec.type == CodecType::kInt8;
}

// Throws ConfigError if top_k_share is not above 0 and at most 1.
void Validate(const Codec& spec);

// Bytes of `floats` encoded floats, at least 0; fixed, so that frames of another size are foreign.
size_t EncodedBytes(const Codec& spec, int64_t floats);

// Packs values + residual into `out`, which has EncodedBytes(spec, values.size()) bytes; residual
// becomes what was lost, so that nothing is lost over many calls. An empty residual stands for
// zeros and what is lost is lost. `out`, `values` and `residual` must not overlap.
void Encode(const Codec& spec, std::span<const float> values, std::span<float> residual,
            std::span<std::byte> out);

// out[i] = the i-th float that `encoded` stands for. Returns false, with `out` as it was, if Encode
// can't have made these bytes of out.size() floats: another size, kTopK indices that don't ascend
// or are too large, kOneBit means of the wrong sign or bits behind the last float, a kInt8 step
// that is negative or infinite or a byte of -128.
bool Decode(const Codec& spec, std::span<const std::byte> encoded, std::span<float> out);

// accumulator[i] += the i-th float that `encoded` stands for. Returns false as Decode does.
bool AddDecoded(const Codec& spec, std::span<const std::byte> encoded,
                std::span<float> accumulator);

// Each value becomes what it would be after Encode and Decode; encoding it again loses nothing.
// Needed where a sum is sent on in several hops and all must end with the same bits. Not for codecs
// with error feedback, whose loss depends on a value's neighbors.
void Round(const Codec& spec, std::span<float> values);

}  // namespace poseidon
