#include "core/text/split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/listed.h"

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

TEST(ListedTest, CommasStandBetween) {
  EXPECT_EQ(Listed(std::vector<std::string>{}), "");
  EXPECT_EQ(Listed(std::vector<std::string>{"conv1"}), "conv1");
  constexpr std::string_view kLayers[] = {"conv1", "fc"};
  EXPECT_EQ(Listed(kLayers), "conv1, fc");
  EXPECT_EQ(Listed(std::set<int>{3, 0, -1}), "-1, 0, 3");
}

}  // namespace
}  // namespace poseidon
