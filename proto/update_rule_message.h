// Between the UpdateRuleSpec of the wire and core's UpdateRule.
#pragma once

#include "core/arithmetic/update_rule.h"
#include "proto/model.pb.h"

namespace poseidon {

// Throws ConfigError as Validate(UpdateRule) does, and for an unknown regularization_type.
UpdateRule ToUpdateRule(const UpdateRuleSpec& spec);

}  // namespace poseidon
