#include "core/arithmetic/keeping_update.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>

namespace poseidon {
namespace {

// With Rule::kState floats of state for a parameter. `Before` is where old parameters go.
template <typename Rule, typename Decay, typename Before>
void ApplyTo(const UpdateScalars& scalars, const KeepingVectors& vectors, Before before) {
  float* __restrict const parameters = vectors.parameters.data();
  const float* __restrict const state_before = vectors.state_before.data();
  float* __restrict const state_after = vectors.state.data();
  const UpdateScalars s = scalars;
  const size_t count = vectors.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    float state[Rule::kState];
    for (int k = 0; k < Rule::kState; ++k) state[k] = state_before[i * Rule::kState + k];
    float parameter = parameters[i];
    UpdateElement<Rule, Decay>(s, before.Exchange(i, parameter), &parameter, state);
    parameters[i] = parameter;
    for (int k = 0; k < Rule::kState; ++k) state_after[i * Rule::kState + k] = state[k];
  }
}

// Reads a gradient and leaves an old parameter: in the gradient's place, or in another.
struct InPlace {
  float* __restrict gradient;
  float Exchange(size_t i, float old) const {
    const float own = gradient[i];
    gradient[i] = old;
    return own;
  }
};

struct Beside {
  const float* __restrict gradient;
  float* __restrict before;
  float Exchange(size_t i, float old) const {
    before[i] = old;
    return gradient[i];
  }
};

template <typename Rule, typename Decay>
void Apply(const UpdateScalars& scalars, const KeepingVectors& vectors) {
  // Two loops: a compiler that can't tell whether the two are one vectorizes neither.
  if (vectors.before.data() == vectors.gradient_sum.data()) {
    ApplyTo<Rule, Decay>(scalars, vectors, InPlace{vectors.before.data()});
  } else {
    ApplyTo<Rule, Decay>(scalars, vectors,
                         Beside{vectors.gradient_sum.data(), vectors.before.data()});
  }
}

template <typename Rule>
void Apply(UpdateRule::Regularization regularization, const UpdateScalars& scalars,
           const KeepingVectors& vectors) {
  if (scalars.decay == 0) {
    Apply<Rule, NoDecay>(scalars, vectors);
  } else if (regularization == UpdateRule::Regularization::kL1) {
    Apply<Rule, L1Decay>(scalars, vectors);
  } else {
    Apply<Rule, L2Decay>(scalars, vectors);
  }
}

struct Type {
  std::string_view name;
  void (*apply)(UpdateRule::Regularization, const UpdateScalars&, const KeepingVectors&);
};

constexpr Type kTypes[] = {
    {"SGD", Apply<SgdElement>},           {"Nesterov", Apply<NesterovElement>},
    {"AdaGrad", Apply<AdaGradElement>},   {"RMSProp", Apply<RmsPropElement>},
    {"AdaDelta", Apply<AdaDeltaElement>}, {"Adam", Apply<AdamElement>}};

// Only the gradient changes, behind each parameter's state.
void UpdateDeferredKeeping(const UpdateStep& step, const KeepingVectors& vectors) {
  std::ranges::copy(vectors.state_before, vectors.state.begin());
  Update(step, vectors.gradient_sum, vectors.parameters, vectors.state);
  std::ranges::copy(vectors.parameters, vectors.before.begin());
}

}  // namespace

void UpdateKeeping(const UpdateStep& step, const KeepingVectors& vectors) {
  const UpdateRule& rule = step.rule;
  const size_t count = vectors.parameters.size();
  const size_t state = count * static_cast<size_t>(OptimizerStatePerParameter(rule));
  CHECK_EQ(vectors.gradient_sum.size(), count);
  CHECK_EQ(vectors.before.size(), count);
  CHECK_EQ(vectors.state_before.size(), state);
  CHECK_EQ(vectors.state.size(), state);
  if (rule.deferred) return UpdateDeferredKeeping(step, vectors);
  const auto* const type = std::ranges::find(kTypes, rule.type, &Type::name);
  CHECK(type != std::end(kTypes)) << "no update of " << rule.type << " keeps what was before";
  type->apply(rule.regularization, ScalarsOf(step), vectors);
}

}  // namespace poseidon
