// Between the messages of the wire and core's UpdateRule and ParameterGroups.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "proto/model.pb.h"

namespace poseidon {

// Throws ConfigError as Validate(UpdateRule) does, and for an unknown regularization_type.
UpdateRule ToUpdateRule(const UpdateRuleSpec& spec);

// UpdateSettings of these groups, the same bytes for the same numbers.
std::string PackSettings(std::span<const ParameterGroup> groups);

// What PackSettings packed; nothing if the bytes are not those of `count` groups that an update of
// this type can use.
std::optional<std::vector<ParameterGroup>> UnpackSettings(std::span<const std::byte> bytes,
                                                          std::string_view type, size_t count);

}  // namespace poseidon
