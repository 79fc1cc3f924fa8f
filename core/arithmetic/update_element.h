// One parameter's update under each of Caffe's rules: the arithmetic that hosts and CUDA devices
// share, as functions that compile for both.
//
// Update() of core/arithmetic/update_rule.h runs it over vectors on the host. A kernel calls
// UpdateElement() with the parameter's own floats and with scalars that ScalarsOf() made on the
// host; compiled with -fmad=false it gives the host's bits, because every operation is then rounded
// once on both sides.
//
// Pure functions on the caller's memory. The formulas are those of Caffe 1.0's solvers
// (src/caffe/solvers), in the order in which its CPU code rounds. With g the gradient with its
// regularisation, r the rate, m momentum, d delta, h a parameter's state, each line taken in turn:
//   SGD       h = c h, h = m h + r g                 step = h
//   Nesterov  h = c h, h' = m h + r g                step = (1 + m) h' - m h
//   AdaGrad   h = h + g^2                            step = r (g / (sqrt(h) + d))
//   RMSProp   h = q h + (1 - q) g^2, q rms_decay     step = r (g / (sqrt(h) + d))
//   AdaDelta  h0 = m h0 + (1 - m) g^2
//             u = g sqrt((h1 + d) / (h0 + d))
//             h1 = m h1 + (1 - m) u^2                step = r u
//   Adam      h0 = m h0 + (1 - m) g
//             h1 = q h1 + (1 - q) g^2, q momentum2   step = r (h0 / (sqrt(h1) + d))
// and then parameter = parameter - step. Adam's r includes sqrt(1 - q^t) / (1 - m^t) with
// t = iteration + 1. c is 1 but for momentum correction.
#pragma once

#include <cmath>

#include "core/arithmetic/device_function.h"

namespace poseidon {

// What is the same for all parameters of a blob in one update.
struct UpdateScalars {
  float learning_rate;   // with policy, scale, the blob's multiplier and Adam's bias correction
  float decay;           // weight decay with the blob's multiplier
  float gradient_scale;  // what the sum of gradients is multiplied with
  float momentum;
  float momentum2;
  float rms_decay;
  float delta;
  float momentum_scale;  // c above
};

// What regularisation adds to the gradient. Without decay the parameter is not read, not even times
// 0, so that an infinite one stays infinite instead of becoming NaN.
struct NoDecay {
  POSEIDON_HOST_DEVICE static float Regularize(const UpdateScalars& /*s*/, float gradient,
                                               float /*parameter*/) {
    return gradient;
  }
};
struct L1Decay {
  POSEIDON_HOST_DEVICE static float Regularize(const UpdateScalars& s, float gradient,
                                               float parameter) {
    return gradient + s.decay * static_cast<float>((parameter > 0) - (parameter < 0));
  }
};
struct L2Decay {
  POSEIDON_HOST_DEVICE static float Regularize(const UpdateScalars& s, float gradient,
                                               float parameter) {
    return gradient + s.decay * parameter;
  }
};

// A rule: how many floats of state a parameter has, and the step that is taken from the parameter
// for the regularised gradient g. `h` points to the parameter's kState floats.
struct SgdElement {
  static constexpr int kState = 1;
  POSEIDON_HOST_DEVICE static float Step(const UpdateScalars& s, float g, float* h) {
    h[0] = s.momentum * (s.momentum_scale * h[0]) + s.learning_rate * g;
    return h[0];
  }
};

struct NesterovElement {
  static constexpr int kState = 1;
  POSEIDON_HOST_DEVICE static float Step(const UpdateScalars& s, float g, float* h) {
    const float before = s.momentum_scale * h[0];
    h[0] = s.momentum * before + s.learning_rate * g;
    return (1.0F + s.momentum) * h[0] - s.momentum * before;
  }
};

struct AdaGradElement {
  static constexpr int kState = 1;
  POSEIDON_HOST_DEVICE static float Step(const UpdateScalars& s, float g, float* h) {
    h[0] = h[0] + g * g;
    return s.learning_rate * (g / (std::sqrt(h[0]) + s.delta));
  }
};

struct RmsPropElement {
  static constexpr int kState = 1;
  POSEIDON_HOST_DEVICE static float Step(const UpdateScalars& s, float g, float* h) {
    h[0] = s.rms_decay * h[0] + (1.0F - s.rms_decay) * (g * g);
    return s.learning_rate * (g / (std::sqrt(h[0]) + s.delta));
  }
};

struct AdaDeltaElement {
  static constexpr int kState = 2;  // mean squares of the gradients and of the steps
  POSEIDON_HOST_DEVICE static float Step(const UpdateScalars& s, float g, float* h) {
    h[0] = s.momentum * h[0] + (1.0F - s.momentum) * (g * g);
    const float u = g * std::sqrt((h[1] + s.delta) / (h[0] + s.delta));
    h[1] = s.momentum * h[1] + (1.0F - s.momentum) * (u * u);
    return s.learning_rate * u;
  }
};

struct AdamElement {
  static constexpr int kState = 2;  // means of the gradients and of their squares
  POSEIDON_HOST_DEVICE static float Step(const UpdateScalars& s, float g, float* h) {
    h[0] = s.momentum * h[0] + (1.0F - s.momentum) * g;
    h[1] = s.momentum2 * h[1] + (1.0F - s.momentum2) * (g * g);
    return s.learning_rate * (h[0] / (std::sqrt(h[1]) + s.delta));
  }
};

// The update of one parameter by the sum of its gradients; optimizer_state points to its
// Rule::kState floats.
template <typename Rule, typename Decay>
POSEIDON_HOST_DEVICE void UpdateElement(const UpdateScalars& s, float gradient_sum,
                                        float* parameter, float* optimizer_state) {
  const float g = Decay::Regularize(s, gradient_sum * s.gradient_scale, *parameter);
  *parameter -= Rule::Step(s, g, optimizer_state);
}

}  // namespace poseidon
