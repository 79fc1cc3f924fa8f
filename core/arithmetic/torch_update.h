// torch.optim's SGD and AdamW as pure functions, as update rules "TorchSGD" and "TorchAdamW" of
// core/arithmetic/update_rule.h, which has Caffe's.
//
// Where PyTorch computes on a processor with AVX2 or more, the parameters get the bits that its
// optimizers give them with the same gradients.
//
// All functions are pure: any thread may call them on vectors that no other thread touches
// meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/arithmetic/torch_element.h"
#include "poseidon/parameter_group.h"

namespace poseidon {

inline constexpr std::string_view kTorchSgd = "TorchSGD";
inline constexpr std::string_view kTorchAdamW = "TorchAdamW";

// Whether an update of this type takes its numbers from ParameterGroups.
bool IsTorchType(std::string_view type);

// Throws ConfigError, as the optimizer's constructor raises ValueError, for a group that can't
// work: a negative or infinite number, a beta outside [0, 1), nesterov without momentum or with
// dampening. Names PyTorch's setting; those of the other type are not looked at.
void Validate(std::string_view type, const ParameterGroup& group);

// One update of n parameters, in place, with the mean gradient_sum[i] * gradient_scale. Types and
// memory are those of Update (core/arithmetic/update_rule.h): optimizer_state has 1 float a
// parameter for SGD, the momentum buffer, and 2 for AdamW, exp_avg and exp_avg_sq. `iteration`
// counts updates from 0: the optimizer's step is one more.
void UpdateByTorch(std::string_view type, const ParameterGroup& group, int64_t iteration,
                   float gradient_scale, std::span<const float> gradient_sum,
                   std::span<float> parameters, std::span<float> optimizer_state);

// Its scalars.
TorchScalars TorchScalarsOf(std::string_view type, const ParameterGroup& group, int64_t iteration,
                            float gradient_scale);

}  // namespace poseidon
