#include "proto/update_rule_message.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

namespace poseidon {
namespace {

std::span<const std::byte> BytesOf(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

const std::vector<ParameterGroup> kGroups = {{.learning_rate = 0.1,
                                              .weight_decay = 5e-4,
                                              .momentum = 0.9,
                                              .momentum2 = 0.999,
                                              .dampening = 0.3,
                                              .delta = 1e-8,
                                              .maximize = true},
                                             {.momentum = 0.5, .nesterov = true}};

TEST(Settings, WhatIsPackedIsUnpacked) {
  const std::string packed = PackSettings(kGroups);
  EXPECT_EQ(UnpackSettings(BytesOf(packed), kTorchSgd, 2), kGroups);
}

TEST(Settings, WhatNoUpdateCanUseIsNotUnpacked) {
  const std::string packed = PackSettings(kGroups);
  EXPECT_FALSE(UnpackSettings(BytesOf(packed), kTorchSgd, 1));
  EXPECT_FALSE(UnpackSettings(BytesOf(packed), kTorchSgd, 3));
  EXPECT_FALSE(UnpackSettings(BytesOf(packed.substr(1)), kTorchSgd, 2));
  EXPECT_FALSE(UnpackSettings(BytesOf(""), kTorchSgd, 2));
  std::vector<ParameterGroup> bad = kGroups;
  bad[1].learning_rate = -1;
  EXPECT_FALSE(UnpackSettings(BytesOf(PackSettings(bad)), kTorchSgd, 2));
}

TEST(ToUpdateRule, OfTorchsTypesNoOtherFieldIsRead) {
  UpdateRuleSpec spec;
  spec.set_type("TorchAdamW");
  EXPECT_EQ(ToUpdateRule(spec).type, kTorchAdamW);
}

}  // namespace
}  // namespace poseidon
