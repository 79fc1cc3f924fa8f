#include "proto/update_rule_message.h"

#include "core/error.h"

namespace poseidon {

UpdateRule ToUpdateRule(const UpdateRuleSpec& spec) {
  UpdateRule rule;
  rule.type = spec.type();
  rule.deferred = spec.deferred();
  if (rule.type == "MeanGradient") {  // which has no other fields
    rule.deferred = true;
    return rule;
  }
  rule.base_lr = spec.base_lr();
  rule.lr_policy = spec.lr_policy();
  rule.gamma = spec.gamma();
  rule.power = spec.power();
  rule.stepsize = spec.stepsize();
  rule.stepvalue.assign(spec.stepvalue().begin(), spec.stepvalue().end());
  rule.max_iter = spec.max_iter();
  rule.momentum = spec.momentum();
  rule.weight_decay = spec.weight_decay();
  rule.warmup_iterations = spec.warmup_iterations();
  rule.warmup_base_lr = spec.warmup_base_lr();
  rule.momentum_correction = spec.momentum_correction();
  if (spec.has_delta()) rule.delta = spec.delta();
  if (spec.has_momentum2()) rule.momentum2 = spec.momentum2();
  if (spec.has_rms_decay()) rule.rms_decay = spec.rms_decay();
  if (spec.regularization_type() == "L1") {
    rule.regularization = UpdateRule::Regularization::kL1;
  } else if (spec.regularization_type() == "L2" || spec.regularization_type().empty()) {
    rule.regularization = UpdateRule::Regularization::kL2;
  } else {
    throw ConfigError("regularization_type is \"" + spec.regularization_type() +
                      "\"; it must be \"L1\" or \"L2\"");
  }
  Validate(rule);
  return rule;
}

}  // namespace poseidon
