// What to do about the learning rate where gradients come late: under staleness, and under codecs
// that keep a part of each gradient for later iterations (error feedback). A rate that suits
// bulk-synchronous training may then diverge. docs/schemes.md, "Learning rates of late gradients",
// has the rule and its sources. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>

#include "proto/model.pb.h"

namespace poseidon {

// For people, a clause without a full stop that says why and names the rate to try; nothing where
// no gradient of the plan comes late.
//
// The rate is the solver's own, which is what a user writes, also where a recipe has scaled it.
//
//   RateAdvice(plan, rule)  // whose base_lr is 0.03
//   // "gradients are up to 2 iterations late (communication.staleness): if training diverges, try
//   //  base_lr 0.01, 1/3 of 0.03"
std::optional<std::string> RateAdvice(const Plan& plan, const UpdateRuleSpec& rule);

// What to do when training has diverged: that, or what else helps.
std::string DivergenceAdvice(const Plan& plan, const UpdateRuleSpec& rule);

}  // namespace poseidon
