// The k floats of the largest magnitudes, by the kernels of device/cuda/top_k.h: five of them, and
// one that clears counters, for up to 64 KV pairs.
#include <glog/logging.h>

#include <algorithm>

#include "core/arithmetic/codec_functions.h"
#include "device/cuda/check.h"
#include "device/cuda/codec_kernels.h"
#include "device/cuda/top_k.h"

namespace poseidon::cuda {
namespace {

constexpr size_t kBytesKept = sizeof(uint32_t) + sizeof(float);

struct TopKBatch {
  TopKPair pairs[kMostPackings];
};
static_assert(sizeof(TopKBatch) < 4000);

// Counters of all pairs of a batch, one pair's behind another's.
struct TopKMemory {
  uint32_t* digits;
  uint32_t* tiles;
  unsigned tiles_a_pair;

  __device__ TopKCounts Of(unsigned pair) const {
    return {digits + kDigitCounts * pair, tiles + size_t{tiles_a_pair} * pair};
  }
};

struct CudaBlock {
  template <typename Phase>
  __device__ void Each(Phase phase) {
    phase(threadIdx.x);
    __syncthreads();
  }
  __device__ uint32_t Read(const uint32_t& shared) {
    const uint32_t value = shared;
    __syncthreads();
    return value;
  }
  __device__ void Add(uint32_t& counter, uint32_t amount) { atomicAdd(&counter, amount); }
};

struct CountDigitWork {
  unsigned digit;
  __device__ void operator()(CudaBlock& block, TopKShared& shared, const TopKPair& pair,
                             const TopKCounts& counts, unsigned tile) const {
    CountDigit(block, shared, pair, counts, tile, digit);
  }
};
struct CountTileWork {
  __device__ void operator()(CudaBlock& block, TopKShared& shared, const TopKPair& pair,
                             const TopKCounts& counts, unsigned tile) const {
    CountTile(block, shared, pair, counts, tile);
  }
};
struct WriteTileWork {
  __device__ void operator()(CudaBlock& block, TopKShared& shared, const TopKPair& pair,
                             const TopKCounts& counts, unsigned tile) const {
    WriteTile(block, shared, pair, counts, tile);
  }
};

// Block (x, y) has tile x of pair y, if it has so many.
template <typename Work>
__global__ void __launch_bounds__(kTopKThreads)
    TileKernel(const __grid_constant__ TopKBatch batch, TopKMemory memory, Work work) {
  __shared__ TopKShared shared;
  const TopKPair pair = batch.pairs[blockIdx.y];
  if (blockIdx.x >= TilesOf(pair.floats)) return;
  CudaBlock block;
  work(block, shared, pair, memory.Of(blockIdx.y), blockIdx.x);
}

template <typename Merge>
__global__ void TopKApplyKernel(const uint32_t* indices, const float* values, float* x,
                                size_t kept) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < kept) x[indices[i]] = Merge::Merge(x[indices[i]], values[i]);
}

TopKPair PairOf(const Packing& packing) {
  const size_t kept = packing.packed.size() / kBytesKept;
  auto* const indices = reinterpret_cast<uint32_t*>(packing.packed.data());
  return {.values = packing.floats.data(),
          .residual = packing.residual.empty() ? nullptr : packing.residual.data(),
          .indices = indices,
          .kept_values = reinterpret_cast<float*>(indices + kept),
          .floats = static_cast<uint32_t>(packing.floats.size()),
          .kept = static_cast<uint32_t>(kept)};
}

uint32_t* AllocateCounters(size_t count) {
  uint32_t* memory = nullptr;
  CheckCuda(cudaMalloc(&memory, count * sizeof(uint32_t)), "allocate what TOP_K counts in");
  return memory;
}

struct FreeDevice {
  void operator()(uint32_t* memory) const { cudaFree(memory); }
};
using Counters = std::unique_ptr<uint32_t, FreeDevice>;

}  // namespace

struct CodecScratch::Selection {
  size_t pairs;  // at a time
  unsigned tiles_a_pair;
  Counters digits, tiles;

  Selection(size_t most_pairs, size_t floats)
      : pairs(std::min(most_pairs, kMostPackings)),
        tiles_a_pair(TilesOf(floats)),
        digits(AllocateCounters(kDigitCounts * pairs)),
        tiles(AllocateCounters(pairs * tiles_a_pair)) {}

  void Pack(std::span<const Packing> packings, CudaStream stream) const {
    TopKBatch batch{};
    unsigned tiles = 0;
    for (size_t p = 0; p < packings.size(); ++p) {
      batch.pairs[p] = PairOf(packings[p]);
      tiles = std::max(tiles, TilesOf(packings[p].floats.size()));
    }
    CHECK_LE(tiles, tiles_a_pair) << "the scratch is too small";
    const TopKMemory memory{digits.get(), this->tiles.get(), tiles_a_pair};
    const dim3 blocks(tiles, static_cast<unsigned>(packings.size()));
    CheckCuda(
        cudaMemsetAsync(digits.get(), 0, packings.size() * kDigitCounts * sizeof(uint32_t), stream),
        "clear counters");
    const auto launch = [&](auto work, const char* name) {
      TileKernel<<<blocks, kTopKThreads, 0, stream>>>(batch, memory, work);
      CheckLaunch(name);
    };
    for (unsigned digit = 0; digit < kDigits; ++digit) launch(CountDigitWork{digit}, "CountDigit");
    launch(CountTileWork{}, "CountTile");
    launch(WriteTileWork{}, "WriteTile");
  }
};

CodecScratch::CodecScratch(const Codec& spec, size_t pairs, size_t floats) {
  if (spec.type != CodecType::kTopK || pairs == 0 || floats == 0) return;
  CHECK_LT(floats, size_t{1} << 32U);
  selection_ = std::make_unique<Selection>(pairs, floats);
}

CodecScratch::~CodecScratch() = default;

void EncodeTopK(std::span<const Packing> packings, CodecScratch& scratch, CudaStream stream) {
  const CodecScratch::Selection* const selection = scratch.selection();
  CHECK(selection != nullptr) << "the scratch is none";
  while (!packings.empty()) {
    const size_t together = std::min(packings.size(), selection->pairs);
    selection->Pack(packings.first(together), stream);
    packings = packings.subspan(together);
  }
}

void ApplyTopK(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
               CudaStream stream) {
  const size_t kept = encoded.size() / kBytesKept;
  const auto* const indices = reinterpret_cast<const uint32_t*>(encoded.data());
  const auto* const values =
      reinterpret_cast<const float*>(encoded.data() + kept * sizeof(uint32_t));
  const unsigned blocks = BlocksFor(kept);
  if (meeting == Meeting::kAdd) {
    TopKApplyKernel<Add><<<blocks, kBlockThreads, 0, stream>>>(indices, values, x.data(), kept);
  } else {
    CheckCuda(cudaMemsetAsync(x.data(), 0, x.size_bytes(), stream), "clear floats");
    TopKApplyKernel<Assign><<<blocks, kBlockThreads, 0, stream>>>(indices, values, x.data(), kept);
  }
  CheckLaunch("TopKApplyKernel");
}

}  // namespace poseidon::cuda
