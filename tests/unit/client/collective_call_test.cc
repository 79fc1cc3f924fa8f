#include "client/communicator/collective_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace poseidon {
namespace {

constexpr int64_t kKib = 1024 / sizeof(float);

Scheme Chosen(int64_t floats, int workers, bool one_machine) {
  return AllReduceCall(floats, {}, 0, workers, one_machine).terms.scheme;
}

TEST(CollectiveCallTest, OverANetworkTheRingIsChosenFromHalfAMebibyte) {
  for (const int workers : {4, 8}) {
    EXPECT_EQ(Chosen(256 * kKib, workers, false), HALVING_DOUBLING);
    EXPECT_EQ(Chosen(512 * kKib, workers, false), RING);
    EXPECT_EQ(Chosen(1024 * kKib, workers, false), RING);
  }
}

TEST(CollectiveCallTest, OnOneMachineHalvingAndDoublingWinsLonger) {
  EXPECT_EQ(Chosen(1024 * kKib, 4, true), HALVING_DOUBLING);
  EXPECT_EQ(Chosen(2048 * kKib, 4, true), RING);
}

TEST(CollectiveCallTest, OtherNumbersOfRanksUseTheRingFromFewBytesOn) {
  EXPECT_EQ(Chosen(16 * kKib, 3, false), HALVING_DOUBLING);
  EXPECT_EQ(Chosen(64 * kKib, 3, false), RING);
  EXPECT_EQ(Chosen(1, 2, false), RING);
}

TEST(CollectiveCallTest, WhatIsAskedForIsTaken) {
  const CollectiveOptions halving = {.scheme = CollectiveScheme::kHalvingDoubling};
  EXPECT_EQ(AllReduceCall(1 << 22, halving, 0, 4, false).terms.scheme, HALVING_DOUBLING);
}

// 4 GiB in chunks of as many, and what is said of it.
std::string SaidOfOneChunk(CollectiveOptions options, int workers) {
  options.chunk_bytes = int64_t{4} << 30;
  try {
    AllReduceCall(int64_t{1} << 30, options, 0, workers, false);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(CollectiveCallTest, ChunksWhoseFramesWouldBeTooLargeAreRefused) {
  const CollectiveOptions ring = {.scheme = CollectiveScheme::kRing};
  EXPECT_THAT(
      SaidOfOneChunk(ring, 3),
      testing::AllOf(testing::StartsWith("chunk_bytes is 4294967296, which makes frames of "
                                         "1431655768 bytes; they may have at most 1073741824"),
                     testing::EndsWith("use smaller chunks, or 0 (automatic)")));
  EXPECT_EQ(SaidOfOneChunk(ring, 4), "");
  EXPECT_EQ(SaidOfOneChunk(ring, 1), "");
  EXPECT_EQ(SaidOfOneChunk({.codec = CollectiveCodec::kFp16}, 2), "");
  EXPECT_NE(SaidOfOneChunk({.scheme = CollectiveScheme::kHalvingDoubling}, 4), "");
  EXPECT_EQ(SaidOfOneChunk({.grid = {{.size = 1}, {.size = 4}, {.size = 2}}}, 8), "");
  EXPECT_NE(SaidOfOneChunk({.grid = {{.size = 2}, {.size = 4}}}, 8), "");
  const CollectiveOptions chunks = {.chunk_bytes = int64_t{2} << 30};
  EXPECT_THROW(AllGatherCall({{0, 1 << 29}, {1 << 29, 0}}, chunks, 0), ConfigError);
  EXPECT_EQ(AllGatherCall({{0, 1 << 28}, {1 << 28, 0}}, chunks, 0).chunks.size(), 1U);
}

int64_t LongestFrame(const CollectiveCall& call) {
  int64_t longest = 0;
  for (const Schedule& chunk : call.chunks) {
    for (const Operation& operation : chunk) {
      if (operation.kind == Operation::Kind::kSend) {
        longest = std::max(longest, operation.range.size);
      }
    }
  }
  return longest * static_cast<int64_t>(sizeof(float));
}

// Chunks that begin in the shorter dimension are cut into the fewest frames.
TEST(CollectiveCallTest, AutomaticChunksFitWhateverTheGrid) {
  constexpr int64_t kFloats = int64_t{4300} << 18;  // 4300 MiB, two chunks
  for (const auto& [x, y] : {std::pair(2200, 2), std::pair(3000, 1), std::pair(2049, 3)}) {
    const CollectiveOptions torus = {.grid = {{.size = x}, {.size = y}}};
    CollectiveCall call;
    EXPECT_NO_THROW(call = AllReduceCall(kFloats, torus, 0, x * y, false)) << x << " x " << y;
    EXPECT_LE(LongestFrame(call), int64_t{1} << 30) << x << " x " << y;
  }
  const CollectiveOptions halving = {
      .grid = {{.size = 4096, .scheme = CollectiveScheme::kHalvingDoubling}}};
  EXPECT_LE(LongestFrame(AllReduceCall(kFloats, halving, 0, 4096, false)), int64_t{1} << 30);
}

// "use smaller chunks, or 0 (automatic)".
TEST(CollectiveCallTest, WhoFollowsTheAdviceIsNotRefused) {
  constexpr int64_t kFloats = int64_t{1} << 30;
  for (const CollectiveOptions& refused :
       {CollectiveOptions{.scheme = CollectiveScheme::kHalvingDoubling},
        CollectiveOptions{.scheme = CollectiveScheme::kRing},
        CollectiveOptions{.grid = {{.size = 2}, {.size = 1}}}}) {
    EXPECT_NE(SaidOfOneChunk(refused, 2), "");
    CollectiveOptions smaller = refused;
    smaller.chunk_bytes = int64_t{1} << 30;
    EXPECT_NO_THROW(AllReduceCall(kFloats, smaller, 0, 2, false));
    EXPECT_NO_THROW(AllReduceCall(kFloats, refused, 0, 2, false));
  }
}

// Doubling sends several blocks at once.
TEST(CollectiveCallTest, AnAllGatherOfLargeBlocksIsSentInFramesThatFit) {
  std::vector<Range> blocks;
  for (int64_t i = 0; i < 8; ++i) blocks.push_back({i << 28, int64_t{1} << 28});
  CollectiveOptions options = {.scheme = CollectiveScheme::kHalvingDoubling};
  for (const int64_t chunk : {int64_t{0}, int64_t{1} << 29, int64_t{1} << 30}) {
    options.chunk_bytes = chunk;
    EXPECT_LE(LongestFrame(AllGatherCall(blocks, options, 0)), int64_t{1} << 30) << chunk;
  }
}

}  // namespace
}  // namespace poseidon
