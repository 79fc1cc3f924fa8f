#include "client/communicator/collective_call.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

}  // namespace
}  // namespace poseidon
