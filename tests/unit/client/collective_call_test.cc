#include "client/communicator/collective_call.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace poseidon
