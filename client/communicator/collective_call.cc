#include "client/communicator/collective_call.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "core/arithmetic/codec.h"
#include "core/error.h"
#include "core/message_limit.h"
#include "core/random.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// Frames of this size are the fastest: smaller ones cost more for each byte, larger ones leave the
// processor's cache before they are added.
constexpr int64_t kFrameBytes = 1 << 20;
// Smaller chunks would be mostly headers.
constexpr int64_t kSmallestChunk = 1024;

// Up to so many bytes halving and doubling beats the ring among a power of two of ranks that are on
// one machine: by 10 to 50% up to 1 MiB among 4 and 8 ranks; it loses from 4 MiB on among 4.
constexpr int64_t kHalvingBytes = 1 << 20;
// Over a network its tail decides: each step is one large message to one partner, and while that
// one is late the link stands still, as a ring's, which passes on many small pieces, does not. Over
// 1 Gb/s its 90th percentile is below the ring's up to 256 KiB and above it from 512 KiB on, among
// 4 and among 8 ranks (tests/bench/network/run.py --part=choice).
constexpr int64_t kHalvingBytesOverNetwork = 256 << 10;
// Among other numbers of ranks a chunk passes through the smaller blocks' links twice as a whole:
// over 1 Gb/s the ring wins from 64 KiB on (3 ranks).
constexpr int64_t kBinaryBlocksBytes = 32 << 10;

// Of a call; their index is an int here, and 32 bits of a frame.
constexpr int64_t kMostChunks = 1 << 30;

constexpr int kFloatBits = 40;
constexpr uint64_t kFloatMask = (uint64_t{1} << kFloatBits) - 1;
constexpr int kDigestBits = 16;

const char* CollectiveName(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all-reduce";
    case Collective::kAllGather:
      return "all-gather";
    case Collective::kBarrier:
      return "barrier";
  }
  return "unknown call";
}

std::string NameOf(CodecType codec) {
  switch (codec) {
    case CodecType::kFp32:
      return "fp32";
    case CodecType::kFp16:
      return "fp16";
    case CodecType::kBf16:
      return "bf16";
    default:
      return "codec " + std::to_string(static_cast<int>(codec));
  }
}

class Digest {
 public:
  void Add(int64_t number) { state_ = DeriveSeed(state_, static_cast<uint64_t>(number)); }
  uint16_t value() const { return static_cast<uint16_t>(state_); }

 private:
  uint64_t state_ = 0;
};

// None for the automatic choice.
std::optional<Scheme> SchemeOf(CollectiveScheme scheme) {
  switch (scheme) {
    case CollectiveScheme::kAutomatic:
      return std::nullopt;
    case CollectiveScheme::kRing:
      return RING;
    case CollectiveScheme::kHalvingDoubling:
      return HALVING_DOUBLING;
    case CollectiveScheme::kTorus:
      return TORUS;
  }
  throw ConfigError("there is no scheme " + std::to_string(static_cast<int>(scheme)));
}

CodecType CodecOf(CollectiveCodec codec) {
  switch (codec) {
    case CollectiveCodec::kFp32:
      return CodecType::kFp32;
    case CollectiveCodec::kFp16:
      return CodecType::kFp16;
    case CollectiveCodec::kBf16:
      return CodecType::kBf16;
  }
  throw ConfigError("there is no codec " + std::to_string(static_cast<int>(codec)));
}

// The plan of a torus along `grid`.
Plan PlanOf(const std::vector<CollectiveOptions::Dimension>& grid) {
  Plan plan;
  for (const CollectiveOptions::Dimension& dimension : grid) {
    const Scheme algorithm = SchemeOf(dimension.scheme).value_or(RING);
    if (algorithm == TORUS) throw ConfigError("a grid's dimension is no torus itself");
    GridDimension& added = *plan.add_grid();
    added.set_size(dimension.size);
    added.set_algorithm(algorithm);
  }
  return plan;
}

void CheckGrid(const CollectiveOptions& options, int workers) {
  int64_t product = 1;
  for (const CollectiveOptions::Dimension& dimension : options.grid) {
    if (dimension.size < 1 || dimension.size > workers) {
      throw ConfigError("a grid's dimension has " + std::to_string(dimension.size) +
                        " ranks, it must have 1 to " + std::to_string(workers));
    }
    product *= dimension.size;
    if (product > workers) break;
  }
  if (product != workers) {
    throw ConfigError("the sizes of a torus's grid must multiply to the number of ranks, " +
                      std::to_string(workers));
  }
}

// Into how many parts a chunk is cut before its largest frames are sent.
int LargestFrames(Scheme scheme, const CollectiveOptions& options, int workers) {
  if (scheme == HALVING_DOUBLING) return 2;
  if (scheme == RING) return workers;
  return options.grid.empty() ? 1 : options.grid.front().size;
}

// Into how many parts the chunk of this index is cut before its largest frames are sent; a torus's
// chunks begin in different dimensions. Of several workers.
int PartsOf(int chunk, Scheme scheme, const CollectiveOptions& options, int workers) {
  if (scheme == HALVING_DOUBLING) return 2;
  if (scheme == RING) return workers;
  for (size_t d = static_cast<size_t>(chunk);; ++d) {
    const CollectiveOptions::Dimension& dimension = options.grid[d % options.grid.size()];
    if (dimension.size == 1) continue;
    return dimension.scheme == CollectiveScheme::kHalvingDoubling ? 2 : dimension.size;
  }
}

// Of chunks that are cut by themselves: of each dimension's, since those of a torus begin in all of
// them in turn, the largest frame is to fit, as floats.
int64_t LargestChunk(Scheme scheme, const CollectiveOptions& options, int workers) {
  const int64_t fastest = kFrameBytes * LargestFrames(scheme, options, workers);
  if (scheme != TORUS || workers == 1) return fastest;
  int fewest = workers;
  for (size_t d = 0; d < options.grid.size(); ++d) {
    fewest = std::min(fewest, PartsOf(static_cast<int>(d), scheme, options, workers));
  }
  return std::min(fastest, kMostBodyBytes * fewest);
}

// `parts`: into how few a chunk of so many floats is cut.
void CheckFrames(int64_t floats, int parts, CodecType codec, const CollectiveOptions& options) {
  const auto bytes =
      static_cast<int64_t>(EncodedBytes({.type = codec}, (floats + parts - 1) / parts));
  if (bytes <= kMostBodyBytes) return;
  throw ConfigError("chunk_bytes is " + std::to_string(options.chunk_bytes) +
                    ", which makes frames of " + std::to_string(bytes) +
                    " bytes; they may have at most " + std::to_string(kMostBodyBytes) +
                    ": use smaller chunks, or 0 (automatic)");
}

// `largest`: bytes of a chunk that is cut by itself.
int ChunkCount(int64_t bytes, const CollectiveOptions& options, int64_t largest) {
  if (options.chunk_bytes != 0 && options.chunk_bytes < kSmallestChunk) {
    throw ConfigError("chunk_bytes is " + std::to_string(options.chunk_bytes) +
                      ", it must be 0 (automatic) or at least " + std::to_string(kSmallestChunk));
  }
  // By itself two chunks where there is enough for both: one is added while the other is under way.
  const int64_t chunk = options.chunk_bytes > 0 ? options.chunk_bytes
                                                : std::clamp((bytes + 1) / 2, kFrameBytes, largest);
  // A chunk has at least one float; their number goes into frames as 32 bits.
  const int64_t most = std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(float)));
  return static_cast<int>(
      std::clamp<int64_t>((bytes + chunk - 1) / chunk, 1, std::min(most, kMostChunks)));
}

Range Cut(const Range& range, int64_t count, int64_t index) {
  // In 128 bits: floats times chunks may be more than 64 hold.
  const auto edge = [&](int64_t i) {
    return static_cast<int64_t>(static_cast<__int128>(range.size) * i / count);
  };
  return {range.offset + edge(index), edge(index + 1) - edge(index)};
}

Scheme AutomaticAllReduce(int64_t bytes, int workers, bool one_machine) {
  if (workers <= 2) return RING;  // both send the same in the same number of rounds
  const bool power = std::has_single_bit(static_cast<unsigned>(workers));
  const int64_t most = one_machine ? kHalvingBytes : kHalvingBytesOverNetwork;
  return bytes <= (power ? most : kBinaryBlocksBytes) ? HALVING_DOUBLING : RING;
}

// Doubling needs no blocks of powers of two to gather.
Scheme AutomaticAllGather(int64_t bytes) {
  return bytes <= kHalvingBytes ? HALVING_DOUBLING : RING;
}

int64_t Bytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

}  // namespace

uint64_t CallTerms::Pack() const {
  uint64_t packed = static_cast<uint64_t>(collective);
  packed = packed << 3 | static_cast<uint64_t>(scheme);
  packed = packed << 3 | static_cast<uint64_t>(codec);
  packed = packed << kFloatBits | (static_cast<uint64_t>(floats) & kFloatMask);
  return packed << kDigestBits | digest;
}

CallTerms CallTerms::Unpack(uint64_t packed) {
  CallTerms terms;
  terms.digest = static_cast<uint16_t>(packed);
  packed >>= kDigestBits;
  terms.floats = static_cast<int64_t>(packed & kFloatMask);
  packed >>= kFloatBits;
  terms.codec = static_cast<CodecType>(packed & 7);
  terms.scheme = static_cast<Scheme>(packed >> 3 & 7);
  terms.collective = static_cast<Collective>(packed >> 6);
  return terms;
}

std::string CallTerms::ToString() const {
  if (collective == Collective::kBarrier) return "barrier";
  return std::string(CollectiveName(collective)) + " of " + std::to_string(floats) + " floats (" +
         SchemeName(scheme) + ", " + NameOf(codec) + ")";
}

CollectiveCall AllReduceCall(int64_t floats, const CollectiveOptions& options, int rank,
                             int workers, bool one_machine) {
  CollectiveCall call;
  const Scheme automatic =
      options.grid.empty() ? AutomaticAllReduce(Bytes(floats), workers, one_machine) : TORUS;
  const Scheme scheme = SchemeOf(options.scheme).value_or(automatic);
  if (scheme == TORUS) CheckGrid(options, workers);
  const int count = ChunkCount(Bytes(floats), options, LargestChunk(scheme, options, workers));
  const Plan plan = PlanOf(options.grid);
  Digest digest;
  digest.Add(count);
  for (const GridDimension& dimension : plan.grid()) {
    digest.Add(dimension.size());
    digest.Add(dimension.algorithm());
  }
  const CodecType codec = CodecOf(options.codec);
  for (int c = 0; c < count; ++c) {
    const Range chunk = Cut({0, floats}, count, c);
    if (workers > 1) CheckFrames(chunk.size, PartsOf(c, scheme, options, workers), codec, options);
    call.chunks.push_back(AllReduceSchedule(scheme, plan, c, chunk, rank, workers));
  }
  call.terms = {Collective::kAllReduce, scheme, codec, floats, digest.value()};
  return call;
}

CollectiveCall AllGatherCall(const std::vector<Range>& blocks, const CollectiveOptions& options,
                             int rank) {
  const CodecType codec = CodecOf(options.codec);
  if (codec != CodecType::kFp32) {
    throw ConfigError("all-gather moves floats as they are, fp32, not as " + NameOf(codec));
  }
  int64_t floats = 0;
  int64_t largest = 0;
  Digest digest;
  for (const Range& block : blocks) {
    floats += block.size;
    largest = std::max(largest, block.size);
    digest.Add(block.size);
  }
  const Scheme scheme = SchemeOf(options.scheme).value_or(AutomaticAllGather(Bytes(floats)));
  if (scheme != RING && scheme != HALVING_DOUBLING) {
    throw ConfigError("no all-gather is done by " + SchemeName(scheme));
  }
  CollectiveCall call;
  const int count = ChunkCount(Bytes(largest), options, kFrameBytes);
  if (blocks.size() > 1) CheckFrames((largest + count - 1) / count, 1, codec, options);
  digest.Add(count);
  for (int c = 0; c < count; ++c) {
    std::vector<Range> pieces;
    for (const Range& block : blocks) pieces.push_back(Cut(block, count, c));
    call.chunks.push_back(AllGatherSchedule(scheme, pieces, rank));
  }
  call.terms = {Collective::kAllGather, scheme, codec, floats, digest.value()};
  return call;
}

}  // namespace poseidon
