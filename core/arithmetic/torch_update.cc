#include "core/arithmetic/torch_update.h"

#include <glog/logging.h>

#include <cmath>
#include <sstream>
#include <string>

#include "core/error.h"

namespace poseidon {
namespace {

struct Vectors {
  size_t count;
  const float* gradient;
  float* parameters;
  float* optimizer_state;
};

template <typename Element>
[[gnu::always_inline]] inline void Loop(const TorchScalars& scalars, const Vectors& vectors) {
  const float* __restrict gradient = vectors.gradient;
  float* __restrict parameters = vectors.parameters;
  float* __restrict optimizer_state = vectors.optimizer_state;
  // A copy, as no store below can change it: it stays in registers.
  const TorchScalars s = scalars;
  for (size_t i = 0; i < vectors.count; ++i) {
    Element::Update(s, gradient[i], &parameters[i], &optimizer_state[i * Element::kState]);
  }
}

#ifdef __x86_64__
// Without FMA's instructions std::fma is a call of the C library for each parameter, which gives
// the same bits and takes many times as long.
[[gnu::target("avx2,fma")]] void SgdLoopFma(const TorchScalars& scalars, const Vectors& vectors) {
  Loop<TorchSgdElement>(scalars, vectors);
}
[[gnu::target("avx2,fma")]] void AdamWLoopFma(const TorchScalars& scalars, const Vectors& vectors) {
  Loop<TorchAdamWElement>(scalars, vectors);
}

bool HasFma() {
  static const bool has_fma =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  return has_fma;
}
#endif

void Apply(std::string_view type, const TorchScalars& scalars, const Vectors& vectors) {
#ifdef __x86_64__
  if (HasFma()) return (type == kTorchSgd ? SgdLoopFma : AdamWLoopFma)(scalars, vectors);
#endif
  if (type == kTorchSgd) return Loop<TorchSgdElement>(scalars, vectors);
  Loop<TorchAdamWElement>(scalars, vectors);
}

template <typename Value>
void Require(bool good, const char* setting, const Value& value, const std::string& wanted) {
  if (good) return;
  std::ostringstream message;
  message << setting << " is " << value << "; it must be " << wanted;
  throw ConfigError(message.str());
}

void RequireAtLeast0(const char* setting, double value) {
  Require(std::isfinite(value) && value >= 0, setting, value, "a finite number, at least 0");
}

void RequireBeta(const char* setting, double value) {
  Require(value >= 0 && value < 1, setting, value, "at least 0 and below 1");
}

}  // namespace

bool IsTorchType(std::string_view type) { return type == kTorchSgd || type == kTorchAdamW; }

void Validate(std::string_view type, const ParameterGroup& group) {
  RequireAtLeast0("lr", group.learning_rate);
  RequireAtLeast0("weight_decay", group.weight_decay);
  if (type == kTorchSgd) {
    RequireAtLeast0("momentum", group.momentum);
    Require(std::isfinite(group.dampening), "dampening", group.dampening, "a finite number");
    if (!group.nesterov) return;
    Require(group.momentum > 0, "momentum", group.momentum, "above 0 with nesterov");
    Require(group.dampening == 0, "dampening", group.dampening, "0 with nesterov");
    return;
  }
  RequireBeta("betas[0]", group.momentum);
  RequireBeta("betas[1]", group.momentum2);
  RequireAtLeast0("eps", group.delta);
}

TorchScalars TorchScalarsOf(std::string_view type, const ParameterGroup& group, int64_t iteration,
                            float gradient_scale) {
  const auto rounded = [](double value) { return static_cast<float>(value); };
  TorchScalars scalars{};
  scalars.gradient_scale = group.maximize ? -gradient_scale : gradient_scale;
  scalars.momentum = rounded(group.momentum);
  if (type == kTorchSgd) {
    scalars.decay = rounded(group.weight_decay);
    scalars.added = iteration == 0 ? 1.0F : rounded(1 - group.dampening);
    scalars.negative_rate = rounded(-group.learning_rate);
    scalars.nesterov = group.nesterov;
    return scalars;
  }
  const auto step = static_cast<double>(iteration + 1);
  const double correction1 = 1 - std::pow(group.momentum, step);
  const double correction2 = 1 - std::pow(group.momentum2, step);
  scalars.decay = rounded(1 - group.learning_rate * group.weight_decay);
  scalars.added = rounded(1 - group.momentum);
  scalars.momentum2 = rounded(group.momentum2);
  scalars.added2 = rounded(1 - group.momentum2);
  scalars.root_divisor = rounded(std::sqrt(correction2));
  scalars.delta = rounded(group.delta);
  scalars.negative_rate = rounded(-(group.learning_rate / correction1));
  return scalars;
}

void UpdateByTorch(std::string_view type, const ParameterGroup& group, int64_t iteration,
                   float gradient_scale, std::span<const float> gradient_sum,
                   std::span<float> parameters, std::span<float> optimizer_state) {
  CHECK(IsTorchType(type));
  const int state = type == kTorchSgd ? TorchSgdElement::kState : TorchAdamWElement::kState;
  CHECK_EQ(gradient_sum.size(), parameters.size());
  CHECK_EQ(optimizer_state.size(), parameters.size() * static_cast<size_t>(state));
  Apply(type, TorchScalarsOf(type, group, iteration, gradient_scale),
        {.count = parameters.size(),
         .gradient = gradient_sum.data(),
         .parameters = parameters.data(),
         .optimizer_state = optimizer_state.data()});
}

}  // namespace poseidon
