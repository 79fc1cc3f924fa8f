#include "planner/policies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace poseidon {
namespace {

// The name that is found, and what a warning says.
std::string Found(const NamedPolicies& policies, const std::string& name) {
  const auto found = FindPolicy(policies, name);
  if (!found) return "none";
  const std::string renaming = RenamingOf(name, found->first);
  return found->first + (renaming.empty() ? "" : "; " + renaming);
}

TEST(PoliciesTest, NamesAreTheJobConfigs) {
  for (const auto& [name, communication] : PlannedPolicies()) {
    EXPECT_EQ(name, Communication::Policy_Name(communication.policy()));
    EXPECT_EQ(Found(SimulatedPolicies(), name), name);
  }
  EXPECT_EQ(PlannedPolicies().size(), static_cast<size_t>(Communication::Policy_ARRAYSIZE));
}

TEST(PoliciesTest, SmallLettersAreTheSameName) {
  EXPECT_EQ(Found(PlannedPolicies(), "time"), "TIME");
  EXPECT_EQ(Found(PlannedPolicies(), "all_ring"), "ALL_RING");
  EXPECT_EQ(Found(SimulatedPolicies(), "wfbp"), "WFBP");
  EXPECT_EQ(Found(SimulatedPolicies(), "all_ps"), "ALL_PS");
}

TEST(PoliciesTest, NamesOfBeforeAreReadAndSayTheNewOne) {
  EXPECT_EQ(Found(PlannedPolicies(), "ring"), "ALL_RING; \"ring\" is now called ALL_RING");
  EXPECT_EQ(Found(SimulatedPolicies(), "halving_doubling"),
            "ALL_HALVING_DOUBLING; \"halving_doubling\" is now called ALL_HALVING_DOUBLING");
  // They were two things.
  EXPECT_EQ(Found(PlannedPolicies(), "ps"), "ALL_PS; \"ps\" is now called ALL_PS");
  EXPECT_EQ(Found(SimulatedPolicies(), "ps"), "CAFFE_PS; \"ps\" is now called CAFFE_PS");
  EXPECT_EQ(Found(PlannedPolicies(), "wfbp"), "none");
  EXPECT_EQ(Found(SimulatedPolicies(), "best"), "none");
}

}  // namespace
}  // namespace poseidon
