// How a GPU finds the k floats of a KV pair's largest magnitudes: as the host does
// (core/arithmetic/codec_top_k.cc), digit by digit from the top, as a radix sort would, but with
// all multiprocessors at work on all KV pairs of a bucket at once.
//
// A KV pair is cut into tiles, and a block of a kernel works on one tile. Kernels follow each
// other; what one finds is there for all blocks of the next:
//
//   CountDigit, for each of three digits  adds the residual (before the first), and counts which
//                                         values the digit has in magnitudes that have the largest
//                                         digits so far
//   CountTile                             how many of a tile's floats are kept
//   WriteTile                             writes them, in their order
//
// A block carries out phases. Each(phase) calls phase(t) for each of its threads, in no order, and
// returns when all have ended. What is read between phases, and steers them, is read by Read(), so
// that no thread is ahead to change it. All of it compiles for the host, too, where
// tests/unit/device/top_k_test.cc calls threads and blocks in random orders and compares with the
// host's bytes; device/cuda/codec_top_k.cu has the block of a GPU.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/arithmetic/half.h"
#include "device/cuda/each.h"

namespace poseidon::cuda {

// A block has as many threads as a GPU's may have at most, for its phases are short.
inline constexpr unsigned kTopKThreads = 1024;
// 64 bytes, half a line of the cache, which four reads of a thread make use of.
inline constexpr unsigned kFloatsAThread = 16;
inline constexpr unsigned kTileFloats = kTopKThreads * kFloatsAThread;

// A magnitude has 31 bits. Two values of the first digit a thread.
inline constexpr unsigned kDigits = 3;
inline constexpr unsigned kDigitValues = 2 * kTopKThreads;
// The first has 11 bits, the others 10.
POSEIDON_HOST_DEVICE constexpr unsigned DigitBits(unsigned digit) { return digit == 0 ? 11 : 10; }
POSEIDON_HOST_DEVICE constexpr unsigned DigitShift(unsigned digit) { return 20 - 10 * digit; }
static_assert(1U << DigitBits(0) == kDigitValues && DigitShift(kDigits - 1) == 0);

// A KV pair; all in device memory. `kept` is at least 1.
struct TopKPair {
  const float* values;
  float* residual;  // null: none
  uint32_t* indices;
  float* kept_values;
  uint32_t floats;
  uint32_t kept;
};

POSEIDON_HOST_DEVICE inline unsigned TilesOf(size_t floats) {
  return static_cast<unsigned>((floats + kTileFloats - 1) / kTileFloats);
}

// What the kernels know of a KV pair from each other, in device memory.
struct TopKCounts {
  // By digit and its value: so many magnitudes. 0 at first. Zeros are not counted: there may be
  // many, and whoever adds to one counter waits for the others that do.
  uint32_t* digits;
  uint32_t* tiles;  // by tile: PackCounts of what is kept
};
inline constexpr size_t kDigitCounts = size_t{kDigits} * kDigitValues;

// What a block's threads share.
struct TopKShared {
  uint32_t digits[kDigitValues];
  uint32_t sums[2][kTopKThreads];
  uint32_t digit, wanted, is_found;
  uint32_t above, ties;
};

// The k-th largest magnitude, or its first digits: above it all are kept, and the first `ties` that
// are exactly so.
struct TopKThreshold {
  uint32_t magnitude;
  uint32_t ties;
  bool is_zero;  // fewer than k are not 0
};

POSEIDON_HOST_DEVICE inline uint32_t MagnitudeOf(float value) {
  return std::bit_cast<uint32_t>(value) & Float32::kMagnitude;
}

// Two counts of one tile's floats in one number, so that one sum adds up both.
inline constexpr unsigned kCountBits = 16;
static_assert(kTileFloats < 1U << kCountBits);
POSEIDON_HOST_DEVICE inline uint32_t PackCounts(uint32_t above, uint32_t ties) {
  return above << kCountBits | ties;
}
POSEIDON_HOST_DEVICE inline uint32_t AboveOf(uint32_t counts) { return counts >> kCountBits; }
POSEIDON_HOST_DEVICE inline uint32_t TiesOf(uint32_t counts) {
  return counts & ((1U << kCountBits) - 1U);
}

// shared.sums[0] becomes the sums of it up to and with each (Hillis and Steele 1986, "Data parallel
// algorithms").
template <typename Block>
POSEIDON_HOST_DEVICE void SumUp(Block& block, TopKShared& shared) {
  unsigned from = 0;
  for (unsigned step = 1; step < kTopKThreads; step *= 2) {
    block.Each([&](unsigned t) {
      const uint32_t before = t >= step ? shared.sums[from][t - step] : 0;
      shared.sums[1 - from][t] = shared.sums[from][t] + before;
    });
    from = 1 - from;
  }
  static_assert(std::bit_width(kTopKThreads) % 2 == 1,
                "an even number of steps ends where it began");
}

// The threshold's first `known` digits, by what was counted of them.
template <typename Block>
POSEIDON_HOST_DEVICE TopKThreshold FindThreshold(Block& block, TopKShared& shared,
                                                 const TopKPair& pair, const uint32_t* counts,
                                                 unsigned known) {
  TopKThreshold threshold{.magnitude = 0, .ties = pair.kept, .is_zero = false};
  for (unsigned d = 0; d < known; ++d, counts += kDigitValues) {
    // Thread t has two values of the digit, from the largest down.
    const auto high = [](unsigned t) { return kDigitValues - 1 - 2 * t; };
    block.Each([&](unsigned t) {
      shared.sums[0][t] = counts[high(t)] + counts[high(t) - 1];
      if (t == 0) shared.is_found = 0;
    });
    SumUp(block, shared);
    block.Each([&](unsigned t) {
      const uint32_t of_high = counts[high(t)];
      const uint32_t before = shared.sums[0][t] - of_high - counts[high(t) - 1];
      if (before >= threshold.ties || shared.sums[0][t] < threshold.ties) return;
      const bool is_high = before + of_high >= threshold.ties;
      shared.digit = is_high ? high(t) : high(t) - 1;
      shared.wanted = threshold.ties - before - (is_high ? 0 : of_high);
      shared.is_found = 1;
    });
    if (block.Read(shared.is_found) == 0) {
      const uint32_t above = block.Read(shared.sums[0][kTopKThreads - 1]);
      return {.magnitude = 0, .ties = pair.kept - above, .is_zero = true};
    }
    threshold.magnitude |= block.Read(shared.digit) << DigitShift(d);
    threshold.ties = block.Read(shared.wanted);
  }
  return threshold;
}

// Where the tile's floats are, once the residual has been added.
struct TopKTile {
  const float* values;
  float* residual;
  unsigned first;
  unsigned size;
};
POSEIDON_HOST_DEVICE inline TopKTile TileOf(const TopKPair& pair, unsigned tile) {
  const unsigned first = tile * kTileFloats;
  const unsigned left = pair.floats - first;
  float* const residual = pair.residual == nullptr ? nullptr : pair.residual + first;
  return {.values = residual == nullptr ? pair.values + first : residual,
          .residual = residual,
          .first = first,
          .size = left < kTileFloats ? left : kTileFloats};
}

// Visits all floats of the tile, each by one of the threads, that follow each other in memory as
// the threads do.
template <typename Visit>
POSEIDON_HOST_DEVICE void EachOfTile(const TopKTile& tile, unsigned t, Visit visit) {
  const size_t quads = IsAligned(tile.values) ? tile.size / kQuad : 0;
  for (size_t i = t; i < quads; i += kTopKThreads) {
    const auto floats = Values<float, kQuad>::Load(tile.values + kQuad * i);
    for (size_t k = 0; k < kQuad; ++k) visit(floats.values[k]);
  }
  for (size_t i = kQuad * quads + t; i < tile.size; i += kTopKThreads) visit(tile.values[i]);
}

template <typename Block>
POSEIDON_HOST_DEVICE void CountDigit(Block& block, TopKShared& shared, const TopKPair& pair,
                                     const TopKCounts& counts, unsigned tile, unsigned digit) {
  const TopKTile floats = TileOf(pair, tile);
  if (digit == 0 && floats.residual != nullptr) {
    const AddEach add{floats.residual, pair.values + floats.first};
    const size_t quads = QuadsOf(add, floats.size);
    block.Each([&](unsigned t) {
      for (size_t i = t; i < ThreadsFor(quads, floats.size); i += kTopKThreads) {
        Treat(add, i, quads, floats.size);
      }
    });
  }
  const TopKThreshold threshold = FindThreshold(block, shared, pair, counts.digits, digit);
  if (threshold.is_zero) return;
  const unsigned shift = DigitShift(digit);
  const unsigned above = shift + DigitBits(digit);
  block.Each([&](unsigned t) { shared.digits[t] = shared.digits[kTopKThreads + t] = 0; });
  block.Each([&](unsigned t) {
    EachOfTile(floats, t, [&](float value) {
      const uint32_t magnitude = MagnitudeOf(value);
      if (magnitude == 0 || magnitude >> above != threshold.magnitude >> above) return;
      block.Add(shared.digits[magnitude >> shift & ((1U << DigitBits(digit)) - 1U)], 1);
    });
  });
  block.Each([&](unsigned t) {
    for (unsigned value = t; value < kDigitValues; value += kTopKThreads) {
      const uint32_t here = shared.digits[value];
      if (here > 0) block.Add(counts.digits[digit * kDigitValues + value], here);
    }
  });
}

template <typename Block>
POSEIDON_HOST_DEVICE void CountTile(Block& block, TopKShared& shared, const TopKPair& pair,
                                    const TopKCounts& counts, unsigned tile) {
  const TopKThreshold threshold = FindThreshold(block, shared, pair, counts.digits, kDigits);
  block.Each([&](unsigned t) {
    if (t == 0) shared.above = 0;
  });
  block.Each([&](unsigned t) {
    uint32_t above = 0, ties = 0;
    EachOfTile(TileOf(pair, tile), t, [&](float value) {
      const uint32_t magnitude = MagnitudeOf(value);
      above += magnitude > threshold.magnitude ? 1 : 0;
      ties += magnitude == threshold.magnitude ? 1 : 0;
    });
    if (above + ties > 0) block.Add(shared.above, PackCounts(above, ties));
  });
  block.Each([&](unsigned t) {
    if (t == 0) counts.tiles[tile] = shared.above;
  });
}

template <typename Block>
POSEIDON_HOST_DEVICE void WriteTile(Block& block, TopKShared& shared, const TopKPair& pair,
                                    const TopKCounts& counts, unsigned tile) {
  if (counts.tiles[tile] == 0) return;
  const TopKThreshold threshold = FindThreshold(block, shared, pair, counts.digits, kDigits);
  const TopKTile floats = TileOf(pair, tile);
  // What the tiles before have.
  block.Each([&](unsigned t) {
    if (t == 0) shared.above = shared.ties = 0;
  });
  block.Each([&](unsigned t) {
    for (unsigned before = t; before < tile; before += kTopKThreads) {
      block.Add(shared.above, AboveOf(counts.tiles[before]));
      block.Add(shared.ties, TiesOf(counts.tiles[before]));
    }
  });
  // And the threads before: each has floats that follow each other.
  const auto each = [&](unsigned t, auto visit) {
    const unsigned first = t * kFloatsAThread;
    const unsigned end =
        first + kFloatsAThread < floats.size ? first + kFloatsAThread : floats.size;
    for (unsigned i = first; i < end; ++i)
      visit(i, floats.values[i], MagnitudeOf(floats.values[i]));
  };
  const auto count = [&](unsigned t) {
    uint32_t above = 0, ties = 0;
    each(t, [&](unsigned, float, uint32_t magnitude) {
      above += magnitude > threshold.magnitude ? 1 : 0;
      ties += magnitude == threshold.magnitude ? 1 : 0;
    });
    return PackCounts(above, ties);
  };
  block.Each([&](unsigned t) { shared.sums[0][t] = count(t); });
  SumUp(block, shared);
  block.Each([&](unsigned t) {
    const uint32_t before = t > 0 ? shared.sums[0][t - 1] : 0;
    uint32_t above = shared.above + AboveOf(before);
    uint32_t ties = shared.ties + TiesOf(before);
    each(t, [&](unsigned i, float value, uint32_t magnitude) {
      const bool is_tie = magnitude == threshold.magnitude;
      const bool is_kept = magnitude > threshold.magnitude || (is_tie && ties < threshold.ties);
      if (is_kept) {
        const uint32_t place = above + (ties < threshold.ties ? ties : threshold.ties);
        pair.indices[place] = floats.first + i;
        pair.kept_values[place] = value;
        // What is sent is no longer owed.
        if (floats.residual != nullptr) floats.residual[i] = Lose::Merge(value, value);
      }
      above += magnitude > threshold.magnitude ? 1 : 0;
      ties += is_tie ? 1 : 0;
    });
  });
}

}  // namespace poseidon::cuda
