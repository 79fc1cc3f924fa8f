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
  if (IsTorchType(rule.type)) {  // likewise
    Validate(rule);
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
  for (const RateScale& scale : spec.rate_scales()) {
    rule.rate_scales.push_back({scale.start_iteration(), scale.scale()});
  }
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

std::string PackSettings(std::span<const ParameterGroup> groups) {
  UpdateSettings settings;
  for (const ParameterGroup& group : groups) {
    GroupSettings& added = *settings.add_groups();
    added.set_learning_rate(group.learning_rate);
    added.set_weight_decay(group.weight_decay);
    added.set_momentum(group.momentum);
    added.set_momentum2(group.momentum2);
    added.set_dampening(group.dampening);
    added.set_delta(group.delta);
    added.set_nesterov(group.nesterov);
    added.set_maximize(group.maximize);
  }
  return settings.SerializeAsString();
}

std::optional<std::vector<ParameterGroup>> UnpackSettings(std::span<const std::byte> bytes,
                                                          std::string_view type, size_t count) {
  UpdateSettings settings;
  if (!settings.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return std::nullopt;
  if (static_cast<size_t>(settings.groups_size()) != count) return std::nullopt;
  std::vector<ParameterGroup> groups;
  for (const GroupSettings& from : settings.groups()) {
    groups.push_back({.learning_rate = from.learning_rate(),
                      .weight_decay = from.weight_decay(),
                      .momentum = from.momentum(),
                      .momentum2 = from.momentum2(),
                      .dampening = from.dampening(),
                      .delta = from.delta(),
                      .nesterov = from.nesterov(),
                      .maximize = from.maximize()});
    try {
      Validate(type, groups.back());
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }
  return groups;
}

}  // namespace poseidon
