#include "core/update_rule.h"

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
enum Field : unsigned {
  kGamma = 1U << 0U,
  kPower = 1U << 1U,
  kStepsize = 1U << 2U,
  kStepvalue = 1U << 3U,
  kMaxIter = 1U << 4U,
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
  const auto passed = std::upper_bound(rule.stepvalue.begin(), rule.stepvalue.end(), iteration) -
                      rule.stepvalue.begin();
  return std::pow(rule.gamma, static_cast<double>(passed));
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
    {"sigmoid", kGamma | kStepsize, Sigmoid},
};

// --- Update rules: one row, one function each. ---

// The scalars of one update.
struct Scalars {
  float learning_rate;  // the blob's lr_mult applied
  float decay;          // the blob's decay_mult applied
  float gradient_scale;
  float momentum;
};

// The vectors of one update. No two overlap.
struct Vectors {
  size_t count;
  const float* gradient;
  float* parameters;
  float* history;
};

// The regularised gradient of one parameter. Without decay the parameter is not read, not even
// times 0, so that an infinite one stays infinite instead of becoming NaN.
struct NoDecay {
  float operator()(float gradient, float /*parameter*/) const { return gradient; }
};
struct L1Decay {
  float decay;
  float operator()(float gradient, float parameter) const {
    return gradient + decay * static_cast<float>((parameter > 0) - (parameter < 0));
  }
};
struct L2Decay {
  float decay;
  float operator()(float gradient, float parameter) const { return gradient + decay * parameter; }
};

// Momentum as in Caffe's SGDSolver: the learning rate is inside the history.
struct Sgd {
  template <typename Regularize>
  static void Apply(const Scalars& scalars, Regularize regularize, const Vectors& vectors) {
    const auto [count, gradient, parameters, history] = vectors;
    const Scalars s = scalars;
    for (size_t i = 0; i < count; ++i) {
      const float g = regularize(gradient[i] * s.gradient_scale, parameters[i]);
      history[i] = s.momentum * history[i] + s.learning_rate * g;
      parameters[i] -= history[i];
    }
  }
};

// Picks the regularisation once, outside the loop.
template <typename Rule>
void ApplyRule(UpdateRule::Regularization regularization, const Scalars& scalars,
               const Vectors& vectors) {
  if (scalars.decay == 0) {
    Rule::Apply(scalars, NoDecay{}, vectors);
  } else if (regularization == UpdateRule::Regularization::kL1) {
    Rule::Apply(scalars, L1Decay{scalars.decay}, vectors);
  } else {
    Rule::Apply(scalars, L2Decay{scalars.decay}, vectors);
  }
}

struct Type {
  std::string_view name;
  int state_per_parameter;
  void (*apply)(UpdateRule::Regularization, const Scalars&, const Vectors&);
};

constexpr Type kTypes[] = {
    {"SGD", 1, ApplyRule<Sgd>},
};

// --- Validation. ---

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
  Require(stepvalue.front() >= 0, "stepvalue", stepvalue.front(), "at least 0");
  for (size_t i = 1; i < stepvalue.size(); ++i) {
    Require(stepvalue[i - 1] < stepvalue[i], "stepvalue", stepvalue[i],
            "ascending, above the " + std::to_string(stepvalue[i - 1]) + " before it");
  }
}

void ValidatePolicy(const UpdateRule& rule) {
  const Policy& policy = Find(kPolicies, rule.lr_policy, "lr_policy");
  const std::string wanted = "above 0 for lr_policy \"" + rule.lr_policy + "\"";
  const auto reads = [&](Field field) { return (policy.fields & field) != 0; };
  const auto positive = [](float value) { return std::isfinite(value) && value > 0; };
  if (reads(kGamma)) Require(positive(rule.gamma), "gamma", rule.gamma, wanted);
  if (reads(kPower)) Require(positive(rule.power), "power", rule.power, wanted);
  if (reads(kStepsize)) Require(rule.stepsize > 0, "stepsize", rule.stepsize, wanted);
  if (reads(kMaxIter)) Require(rule.max_iter > 0, "max_iter", rule.max_iter, wanted);
  if (reads(kStepvalue)) ValidateStepvalue(rule.stepvalue);
}

}  // namespace

void Validate(const UpdateRule& rule) {
  Find(kTypes, rule.type, "type");
  ValidatePolicy(rule);
  Require(std::isfinite(rule.base_lr) && rule.base_lr >= 0, "base_lr", rule.base_lr,
          "a finite number, at least 0");
  Require(rule.momentum >= 0 && rule.momentum < 1, "momentum", rule.momentum,
          "at least 0 and below 1, or the updates would grow without end");
  Require(std::isfinite(rule.weight_decay) && rule.weight_decay >= 0, "weight_decay",
          rule.weight_decay, "a finite number, at least 0");
}

float LearningRate(const UpdateRule& rule, int64_t iteration) {
  const Policy& policy = Find(kPolicies, rule.lr_policy, "lr_policy");
  return static_cast<float>(rule.base_lr * policy.factor(rule, iteration));
}

int StatePerParameter(const UpdateRule& rule) {
  return Find(kTypes, rule.type, "type").state_per_parameter;
}

void Update(const UpdateRule& rule, float learning_rate, const Multipliers& multipliers,
            std::span<const float> gradient_sum, float gradient_scale, std::span<float> parameters,
            std::span<float> history) {
  const Type& type = Find(kTypes, rule.type, "type");
  CHECK_EQ(gradient_sum.size(), parameters.size());
  CHECK_EQ(history.size(), parameters.size() * static_cast<size_t>(type.state_per_parameter));
  const Scalars scalars{.learning_rate = learning_rate * multipliers.lr,
                        .decay = rule.weight_decay * multipliers.decay,
                        .gradient_scale = gradient_scale,
                        .momentum = rule.momentum};
  const Vectors vectors{.count = parameters.size(),
                        .gradient = gradient_sum.data(),
                        .parameters = parameters.data(),
                        .history = history.data()};
  type.apply(rule.regularization, scalars, vectors);
}

}  // namespace poseidon
