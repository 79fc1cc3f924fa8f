#include "core/arithmetic/update_rule.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string_view>

#include "core/error.h"

namespace poseidon {
namespace {

// --- Learning-rate policies: one row each. ---

// The fields of UpdateRule that a policy reads; Validate wants those set.
enum PolicyField : unsigned {
  kGamma = 1U << 0U,
  kPower = 1U << 1U,
  kStepsize = 1U << 2U,
  kStepvalue = 1U << 3U,
  kMaxIter = 1U << 4U,
  kAnyGamma = 1U << 5U,  // of either sign, or 0: the rate rises, falls or stays
};

struct Policy {
  std::string_view name;
  unsigned fields;
  // What base_lr is multiplied with at an iteration.
  double (*factor)(const UpdateRule& rule, int64_t iteration);
};

double Step(const UpdateRule& rule, int64_t iteration) {
  const int64_t steps = iteration / rule.stepsize;
  return std::pow(rule.gamma, static_cast<double>(steps));
}

double Exp(const UpdateRule& rule, int64_t iteration) {
  return std::pow(rule.gamma, static_cast<double>(iteration));
}

double Inv(const UpdateRule& rule, int64_t iteration) {
  return std::pow(1.0 + rule.gamma * static_cast<double>(iteration), -rule.power);
}

double Multistep(const UpdateRule& rule, int64_t iteration) {
  return std::pow(rule.gamma, static_cast<double>(StepsTaken(rule.stepvalue, iteration)));
}

double Poly(const UpdateRule& rule, int64_t iteration) {
  const double done = static_cast<double>(iteration) / static_cast<double>(rule.max_iter);
  // Training may be asked to go on after max_iter; a negative base would give NaN.
  return std::pow(std::max(0.0, 1.0 - done), rule.power);
}

double Sigmoid(const UpdateRule& rule, int64_t iteration) {
  return 1.0 / (1.0 + std::exp(-rule.gamma * static_cast<double>(iteration - rule.stepsize)));
}

constexpr Policy kPolicies[] = {
    {"fixed", 0, [](const UpdateRule&, int64_t) { return 1.0; }},
    {"step", kGamma | kStepsize, Step},
    {"exp", kGamma, Exp},
    {"inv", kGamma | kPower, Inv},
    {"multistep", kGamma | kStepvalue, Multistep},
    {"poly", kPower | kMaxIter, Poly},
    {"sigmoid", kAnyGamma | kStepsize, Sigmoid},
};

// --- Update rules: one row each, the arithmetic in core/arithmetic/update_element.h; of Torch's in
// core/arithmetic/torch_update.h. ---

// The vectors of one update. Gradients are in a vector of their own or, deferred, in the
// optimizer_state behind each parameter's state. Otherwise no two overlap.
struct Vectors {
  size_t count;
  const float* gradient;  // null: deferred
  float* parameters;
  float* optimizer_state;
};

template <typename Rule, typename Decay>
void ApplyTo(const UpdateScalars& scalars, const Vectors& vectors) {
  const float* __restrict gradient = vectors.gradient;
  float* __restrict parameters = vectors.parameters;
  float* __restrict optimizer_state = vectors.optimizer_state;
  // A copy, as no store below can change it: it stays in registers.
  const UpdateScalars s = scalars;
  if (gradient == nullptr) {
    constexpr int kStride = Rule::kState + 1;
    for (size_t i = 0; i < vectors.count; ++i) {
      float* const state = &optimizer_state[i * kStride];
      UpdateElement<Rule, Decay>(s, state[Rule::kState], &parameters[i], state);
    }
    return;
  }
  for (size_t i = 0; i < vectors.count; ++i) {
    UpdateElement<Rule, Decay>(s, gradient[i], &parameters[i], &optimizer_state[i * Rule::kState]);
  }
}

// Picks the regularisation once, outside the loop.
template <typename Rule>
void Apply(UpdateRule::Regularization regularization, const UpdateScalars& scalars,
           const Vectors& vectors) {
  if (scalars.decay == 0) {
    ApplyTo<Rule, NoDecay>(scalars, vectors);
  } else if (regularization == UpdateRule::Regularization::kL1) {
    ApplyTo<Rule, L1Decay>(scalars, vectors);
  } else {
    ApplyTo<Rule, L2Decay>(scalars, vectors);
  }
}

// The fields of UpdateRule that a type reads; Validate checks those.
enum TypeField : unsigned {
  kMomentum = 1U << 0U,
  kMomentum2 = 1U << 1U,
  kRmsDecay = 1U << 2U,
  kDelta = 1U << 3U,
};

struct Type {
  std::string_view name;
  unsigned fields;
  int state_per_parameter;
  void (*apply)(UpdateRule::Regularization, const UpdateScalars&, const Vectors&);
};

template <typename Rule>
constexpr Type TypeOf(std::string_view name, unsigned fields) {
  return {name, fields, Rule::kState, Apply<Rule>};
}

constexpr Type kTypes[] = {
    TypeOf<SgdElement>("SGD", kMomentum),
    TypeOf<NesterovElement>("Nesterov", kMomentum),
    TypeOf<AdaGradElement>("AdaGrad", kDelta),
    TypeOf<RmsPropElement>("RMSProp", kRmsDecay | kDelta),
    TypeOf<AdaDeltaElement>("AdaDelta", kMomentum | kDelta),
    TypeOf<AdamElement>("Adam", kMomentum | kMomentum2 | kDelta),
    {.name = kTorchSgd,
     .fields = 0,
     .state_per_parameter = TorchSgdElement::kState,
     .apply = nullptr},
    {.name = kTorchAdamW,
     .fields = 0,
     .state_per_parameter = TorchAdamWElement::kState,
     .apply = nullptr},
    {.name = "MeanGradient", .fields = 0, .state_per_parameter = 0, .apply = nullptr},
};

// The row called `name`. Throws ConfigError with all names if there is none.
template <typename Row, size_t kRows>
const Row& Find(const Row (&rows)[kRows], std::string_view name, const char* field) {
  std::string known;
  for (const Row& row : rows) {
    if (row.name == name) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw ConfigError(std::string(field) + " is \"" + std::string(name) + "\"; it must be " +
                    (kRows > 1 ? "one of " : "") + known);
}

double ScaleAt(const std::vector<UpdateRule::RateScale>& scales, int64_t iteration) {
  double scale = 1;
  for (const UpdateRule::RateScale& next : scales) {
    if (next.start_iteration <= iteration) scale = next.scale;
  }
  return scale;
}

// Without rate_scales.
double PlainRate(const UpdateRule& rule, int64_t iteration) {
  const Policy& policy = Find(kPolicies, rule.lr_policy, "lr_policy");
  const double rate = rule.base_lr * policy.factor(rule, iteration);
  if (iteration >= rule.warmup_iterations) return rate;
  const double share = static_cast<double>(iteration) / static_cast<double>(rule.warmup_iterations);
  return rule.warmup_base_lr + (rate - rule.warmup_base_lr) * share;
}

double Rate(const UpdateRule& rule, int64_t iteration) {
  return PlainRate(rule, iteration) * ScaleAt(rule.rate_scales, iteration);
}

// What Adam multiplies the rate with, because its means start at 0 (Kingma and Ba 2015, section 2).
double BiasCorrection(const UpdateRule& rule, int64_t iteration) {
  const auto t = static_cast<double>(iteration + 1);
  return std::sqrt(1.0 - std::pow(double{rule.momentum2}, t)) /
         (1.0 - std::pow(double{rule.momentum}, t));
}

// What the momentum of the iteration before is multiplied with.
double MomentumScale(const UpdateRule& rule, int64_t iteration) {
  if (!rule.momentum_correction || iteration == 0) return 1;
  const double before = Rate(rule, iteration - 1);
  return before > 0 ? Rate(rule, iteration) / before : 1;
}

// --- Validation. ---

// Throws ConfigError unless `good`.
template <typename Value>
void Require(bool good, const char* field, const Value& value, const std::string& wanted) {
  if (good) return;
  std::ostringstream message;
  message << field << " is " << value << "; it must be " << wanted;
  throw ConfigError(message.str());
}

void ValidateStepvalue(const std::vector<int>& stepvalue) {
  Require(!stepvalue.empty(), "stepvalue", "missing", "given for lr_policy \"multistep\"");
  for (const int value : stepvalue) Require(value >= 0, "stepvalue", value, "at least 0");
}

void ValidatePolicy(const UpdateRule& rule) {
  const Policy& policy = Find(kPolicies, rule.lr_policy, "lr_policy");
  const std::string wanted = "above 0 for lr_policy \"" + rule.lr_policy + "\"";
  const auto reads = [&](PolicyField field) { return (policy.fields & field) != 0; };
  const auto positive = [](float value) { return std::isfinite(value) && value > 0; };
  if (reads(kGamma)) Require(positive(rule.gamma), "gamma", rule.gamma, wanted);
  if (reads(kAnyGamma)) Require(std::isfinite(rule.gamma), "gamma", rule.gamma, "a number");
  if (reads(kPower)) {
    Require(std::isfinite(rule.power) && rule.power >= 0, "power", rule.power,
            "a finite number, at least 0, for lr_policy \"" + rule.lr_policy + "\"");
  }
  if (reads(kStepsize)) Require(rule.stepsize > 0, "stepsize", rule.stepsize, wanted);
  if (reads(kMaxIter)) Require(rule.max_iter > 0, "max_iter", rule.max_iter, wanted);
  if (reads(kStepvalue)) ValidateStepvalue(rule.stepvalue);
}

void ValidateType(const UpdateRule& rule) {
  const Type& type = Find(kTypes, rule.type, "type");
  const auto reads = [&](TypeField field) { return (type.fields & field) != 0; };
  const auto decay = [](const char* field, float value, const std::string& wanted) {
    Require(value >= 0 && value < 1, field, value, wanted);
  };
  if (reads(kMomentum)) {
    decay("momentum", rule.momentum,
          "at least 0 and below 1, or the updates would grow without end");
  } else {
    Require(rule.momentum == 0, "momentum", rule.momentum,
            "0 for type \"" + rule.type + "\", which has none");
  }
  const std::string wanted = "at least 0 and below 1 for type \"" + rule.type + "\"";
  if (reads(kMomentum2)) decay("momentum2", rule.momentum2, wanted);
  if (reads(kRmsDecay)) decay("rms_decay", rule.rms_decay, wanted);
  if (reads(kDelta)) {
    Require(std::isfinite(rule.delta) && rule.delta > 0, "delta", rule.delta,
            "a finite number above 0 for type \"" + rule.type + "\", which divides by it");
  }
}

}  // namespace

void Validate(const UpdateRule& rule) {
  ValidateType(rule);
  ValidatePolicy(rule);
  Require(std::isfinite(rule.base_lr) && rule.base_lr >= 0, "base_lr", rule.base_lr,
          "a finite number, at least 0");
  Require(std::isfinite(rule.weight_decay) && rule.weight_decay >= 0, "weight_decay",
          rule.weight_decay, "a finite number, at least 0");
  Require(rule.warmup_iterations >= 0, "warmup_iterations", rule.warmup_iterations, "at least 0");
  Require(std::isfinite(rule.warmup_base_lr) && rule.warmup_base_lr >= 0, "warmup_base_lr",
          rule.warmup_base_lr, "a finite number, at least 0");
  for (const UpdateRule::RateScale& scale : rule.rate_scales) {
    Require(std::isfinite(scale.scale) && scale.scale > 0, "a scale of the learning rate",
            scale.scale, "a finite number above 0");
  }
  Require(rule.deferred || rule.type != "MeanGradient", "type", rule.type,
          "another one unless the update is deferred");
  Require(!rule.deferred || !IsTorchType(rule.type), "type", rule.type,
          "another one where the update is deferred");
}

int StepsTaken(const std::vector<int>& stepvalue, int64_t iteration) {
  int steps = 0;
  int64_t earliest = 0;
  for (const int value : stepvalue) {
    const int64_t at = std::max<int64_t>(value, earliest);
    if (at > iteration) break;
    ++steps;
    earliest = at + 1;
  }
  return steps;
}

float LearningRate(const UpdateRule& rule, int64_t iteration) {
  return static_cast<float>(Rate(rule, iteration));
}

double RateForUpdates(const UpdateRule& rule, int64_t iteration, int64_t updates) {
  if (rule.type != "Adam") return 1;
  return BiasCorrection(rule, updates) / BiasCorrection(rule, iteration);
}

int OptimizerStatePerParameter(const UpdateRule& rule) {
  return Find(kTypes, rule.type, "type").state_per_parameter + (rule.deferred ? 1 : 0);
}

UpdateScalars ScalarsOf(const UpdateStep& step) {
  const UpdateRule& rule = step.rule;
  float rate = LearningRate(rule, step.iteration) * step.learning_rate_scale * step.multipliers.lr;
  if (rule.type == "Adam") rate *= static_cast<float>(BiasCorrection(rule, step.iteration));
  return {.learning_rate = rate,
          .decay = rule.weight_decay * step.multipliers.decay,
          .gradient_scale = step.gradient_scale,
          .momentum = rule.momentum,
          .momentum2 = rule.momentum2,
          .rms_decay = rule.rms_decay,
          .delta = rule.delta,
          .momentum_scale = static_cast<float>(MomentumScale(rule, step.iteration))};
}

void Update(const UpdateStep& step, std::span<const float> gradient_sum,
            std::span<float> parameters, std::span<float> optimizer_state) {
  const UpdateRule& rule = step.rule;
  const float gradient_scale = step.gradient_scale;
  const size_t state = static_cast<size_t>(OptimizerStatePerParameter(rule));
  CHECK_EQ(gradient_sum.size(), parameters.size());
  CHECK_EQ(optimizer_state.size(), parameters.size() * state);
  if (rule.deferred && state == 1) {
    if (optimizer_state.data() == gradient_sum.data() && gradient_scale == 1) return;
    std::transform(gradient_sum.begin(), gradient_sum.end(), optimizer_state.begin(),
                   [gradient_scale](float sum) { return sum * gradient_scale; });
    return;
  }
  if (rule.deferred) {
    for (size_t i = 0; i < gradient_sum.size(); ++i) {
      optimizer_state[i * state + state - 1] = gradient_sum[i] * gradient_scale;
    }
    return;
  }
  if (IsTorchType(rule.type)) {
    CHECK(step.group != nullptr);
    return UpdateByTorch(rule.type, *step.group, step.iteration, gradient_scale, gradient_sum,
                         parameters, optimizer_state);
  }
  const Vectors vectors{.count = parameters.size(),
                        .gradient = gradient_sum.data(),
                        .parameters = parameters.data(),
                        .optimizer_state = optimizer_state.data()};
  Find(kTypes, rule.type, "type").apply(rule.regularization, ScalarsOf(step), vectors);
}

void UpdateDeferred(const UpdateStep& step, std::span<float> parameters,
                    std::span<float> optimizer_state) {
  const UpdateRule& rule = step.rule;
  const Type& type = Find(kTypes, rule.type, "type");
  CHECK(rule.deferred && type.apply != nullptr);
  CHECK_EQ(optimizer_state.size(),
           parameters.size() * static_cast<size_t>(OptimizerStatePerParameter(rule)));
  const Vectors vectors{.count = parameters.size(),
                        .gradient = nullptr,
                        .parameters = parameters.data(),
                        .optimizer_state = optimizer_state.data()};
  type.apply(rule.regularization, ScalarsOf(step), vectors);
}

}  // namespace poseidon
