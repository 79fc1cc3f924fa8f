#include "core/text/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(SplitAtCommas, BlanksAroundAPartAreNoneOfIt) {
  EXPECT_THAT(SplitAtCommas("a, b ,c"), ElementsAre("a", "b", "c"));
  EXPECT_THAT(SplitAtCommas("\ta b\t,  /c d/e  "), ElementsAre("a b", "/c d/e"));
}

TEST(SplitAtCommas, WhatIsEmptyIsNoPart) {
  EXPECT_THAT(SplitAtCommas(",a,,b,"), ElementsAre("a", "b"));
  EXPECT_THAT(SplitAtCommas("a, ,\t,b"), ElementsAre("a", "b"));
  EXPECT_THAT(SplitAtCommas(" , "), IsEmpty());
  EXPECT_THAT(SplitAtCommas(""), IsEmpty());
}

}  // namespace
}  // namespace poseidon
