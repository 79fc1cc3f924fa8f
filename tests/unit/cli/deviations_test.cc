#include "cli/input/deviations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string Refusal(const std::string& text) {
  try {
    ParseDeviations(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "not refused";
}

TEST(DeviationsFlagTest, WhatIsSaidOfAWorkerIsOneDeviation) {
  const std::vector<Deviation> deviations = ParseDeviations("3:2x,0:1Gbps,3:25Gbps,12:0.5x");
  ASSERT_EQ(deviations.size(), 3U);
  EXPECT_EQ(deviations[0].ShortDebugString(), "worker: 3 compute_factor: 2 bandwidth: \"25Gbps\"");
  EXPECT_EQ(deviations[1].ShortDebugString(), "worker: 0 bandwidth: \"1Gbps\"");
  EXPECT_EQ(deviations[2].ShortDebugString(), "worker: 12 compute_factor: 0.5");
  EXPECT_TRUE(ParseDeviations("").empty());
}

TEST(DeviationsFlagTest, WhatCanNotBeReadIsRefusedWithAnExample) {
  for (const char* text : {"3", "3:", "x:2x", ":2x", "3:2", "3:x", "3:2y", "3:1Gb", "1:2x,,2:2x",
                           "1.5:2x", "99999999999:2x", "3:2x:4x"}) {
    EXPECT_THAT(Refusal(text),
                AllOf(HasSubstr("--deviations: \""), HasSubstr("--deviations=3:2x,5:1Gbps")))
        << text;
  }
  EXPECT_THAT(Refusal("1:2x,1:3x"), HasSubstr("\"1:3x\" is the second factor of its worker"));
  EXPECT_THAT(Refusal("1:1Gbps,1:2Gbps"), HasSubstr("is the second rate of its worker"));
}

}  // namespace
}  // namespace poseidon
