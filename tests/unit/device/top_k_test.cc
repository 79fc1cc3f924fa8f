// What a GPU's blocks do for TOP_K, on the host: threads and blocks in random orders, as nothing
// orders them within a phase and within a kernel, against the bytes of the host's codec.
#include "device/cuda/top_k.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "tests/unit/core/arithmetic/codec_testing.h"

namespace poseidon::cuda {
namespace {

class RandomBlock {
 public:
  explicit RandomBlock(std::mt19937& random) : random_(random), threads_(kTopKThreads) {
    std::iota(threads_.begin(), threads_.end(), 0U);
  }

  template <typename Phase>
  void Each(Phase phase) {
    std::shuffle(threads_.begin(), threads_.end(), random_);
    for (const unsigned t : threads_) phase(t);
  }
  static uint32_t Read(const uint32_t& shared) { return shared; }
  static void Add(uint32_t& counter, uint32_t amount) { counter += amount; }

 private:
  std::mt19937& random_;
  std::vector<unsigned> threads_;
};

// What is drawn: how often each case came, so that none is forgotten.
struct Seen {
  int residuals = 0, unaligned = 0, tiles = 0, fewer_than_kept = 0, ties = 0;
};

class TopKTest : public testing::Test {
 protected:
  size_t Draw(size_t below) { return random_() % below; }

  // Gradients as they are, with many zeros, of few different values, all zero, of any bits.
  Floats RandomValues(size_t size) {
    Floats floats = RandomFloats(size, random_);
    switch (Draw(5)) {
      case 0:
        for (float& f : floats) f = Draw(50) == 0 ? f : 0.0F;
        break;
      case 1:
        for (float& f : floats) f = Draw(2) == 0 ? 0.25F : -0.25F;
        break;
      case 2:
        std::ranges::fill(floats, Draw(2) == 0 ? 0.0F : -0.0F);
        break;
      case 3:
        for (float& f : floats) {
          do f = std::bit_cast<float>(static_cast<uint32_t>(random_()));
          while (std::isnan(f));
        }
        break;
      default:
        break;
    }
    return floats;
  }

  void Kernel(unsigned tiles, const std::function<void(RandomBlock&, TopKShared&, unsigned)>& run) {
    std::vector<unsigned> order(tiles);
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random_);
    for (const unsigned tile : order) {
      // A block begins with what another has left.
      TopKShared shared;
      std::fill_n(reinterpret_cast<uint32_t*>(&shared), sizeof shared / sizeof(uint32_t),
                  static_cast<uint32_t>(random_()));
      RandomBlock block(random_);
      run(block, shared, tile);
    }
  }

  void Select(const TopKPair& pair) {
    const unsigned tiles = TilesOf(pair.floats);
    std::vector<uint32_t> digits(kDigitCounts), of_tiles(tiles, 4711);
    const TopKCounts counts{digits.data(), of_tiles.data()};
    for (unsigned digit = 0; digit < kDigits; ++digit) {
      Kernel(tiles, [&](RandomBlock& block, TopKShared& shared, unsigned tile) {
        CountDigit(block, shared, pair, counts, tile, digit);
      });
    }
    Kernel(tiles, [&](RandomBlock& block, TopKShared& shared, unsigned tile) {
      CountTile(block, shared, pair, counts, tile);
    });
    Kernel(tiles, [&](RandomBlock& block, TopKShared& shared, unsigned tile) {
      WriteTile(block, shared, pair, counts, tile);
    });
  }

  std::mt19937 random_{7};
};

TEST_F(TopKTest, PacksTheHostsBytes) {
  Seen seen;
  for (int i = 0; i < 150; ++i) {
    const size_t size = 1 + Draw(Draw(4) == 0 ? 3 * kTileFloats : 2000);
    const size_t offset = Draw(2) == 0 ? 0 : Draw(4);
    const double share = std::exp(-8 * std::generate_canonical<double, 32>(random_));
    const Codec codec{CodecType::kTopK, share};
    const Floats drawn = RandomValues(size + offset);
    const std::span<const float> values = std::span(drawn).subspan(offset);
    Floats owed = RandomValues(size);
    const bool has_residual = Draw(2) == 0;
    Bytes expected(EncodedBytes(codec, static_cast<int64_t>(size)));
    Floats expected_owed = owed;
    Encode(codec, values, has_residual ? std::span(expected_owed) : std::span<float>(), expected);

    Bytes packed(expected.size());
    const size_t kept = packed.size() / (sizeof(uint32_t) + sizeof(float));
    auto* const out = reinterpret_cast<uint32_t*>(packed.data());
    Select({.values = values.data(),
            .residual = has_residual ? owed.data() : nullptr,
            .indices = out,
            .kept_values = reinterpret_cast<float*>(out + kept),
            .floats = static_cast<uint32_t>(size),
            .kept = static_cast<uint32_t>(kept)});
    ASSERT_EQ(packed, expected) << size << " floats, " << kept << " kept, case " << i;
    ASSERT_TRUE(SameBits(owed, expected_owed)) << size << " floats, case " << i;

    const auto is_zero = [](float value) { return value == 0; };
    const auto zeros = static_cast<size_t>(std::ranges::count_if(values, is_zero));
    seen.residuals += has_residual ? 1 : 0;
    seen.unaligned += IsAligned(values.data()) ? 0 : 1;
    seen.tiles += TilesOf(size) > 1 ? 1 : 0;
    seen.fewer_than_kept += !has_residual && size - zeros < kept ? 1 : 0;
  }
  EXPECT_GT(seen.residuals, 30);
  EXPECT_GT(seen.unaligned, 30);
  EXPECT_GT(seen.tiles, 10);
  EXPECT_GT(seen.fewer_than_kept, 10);
}

}  // namespace
}  // namespace poseidon::cuda
