// One parameter's update as torch.optim.SGD and torch.optim.AdamW compute it: the arithmetic that
// hosts and CUDA devices share.
//
// UpdateByTorch() of core/arithmetic/torch_update.h runs it over vectors on the host. Operations
// are those of PyTorch's single-tensor implementations, each rounded where PyTorch's kernels round
// on processors with AVX2 or more: add(x, alpha), lerp and the like are fused multiply-adds there,
// and here. So std::fma is written where a product and a sum are rounded once, and nothing else may
// be fused (-ffp-contract=off, -fmad=false).
//
// Pure functions on the caller's memory. With g the gradient, p the parameter, r the rate, w the
// weight decay, m momentum, d dampening, b1 and b2 the betas, each line taken in turn:
//   SGD    g = g + w p              AdamW  p = (1 - r w) p
//          h = m h + (1 - d) g             h0 = h0 + (1 - b1) (g - h0)
//          g = h, nesterov: g + m h        h1 = b2 h1 + (1 - b2) g g
//          p = p - r g                     p = p - r / c1 (h0 / (sqrt(h1) / sqrt(c2) + eps))
// with ci = 1 - bi^t and t = iteration + 1. Without momentum h is left alone and g stays g; the
// first update of all takes h = g, whatever the dampening. maximize turns g's sign first.
#pragma once

#include <cmath>

#include "core/arithmetic/device_function.h"

namespace poseidon {

// What is the same for all parameters of a group in one update; rounded once, from double.
struct TorchScalars {
  float gradient_scale;  // of the sum of gradients; negative: maximize
  float decay;           // SGD: w; AdamW: 1 - r w
  float momentum;        // m; AdamW: b1
  float added;           // 1 - d, at first 1; AdamW: 1 - b1
  float momentum2;       // AdamW: b2
  float added2;          // AdamW: 1 - b2
  float root_divisor;    // AdamW: sqrt(c2)
  float delta;           // AdamW: eps
  float negative_rate;   // -r; AdamW: -r / c1
  bool nesterov;         // SGD
};

// A rule: how many floats of state a parameter has, and its update by the sum of its gradients.
struct TorchSgdElement {
  static constexpr int kState = 1;
  POSEIDON_HOST_DEVICE static void Update(const TorchScalars& s, float gradient_sum,
                                          float* parameter, float* h) {
    float g = gradient_sum * s.gradient_scale;
    // Not even times 0, which would make NaN of an infinite parameter.
    if (s.decay != 0) g = std::fma(*parameter, s.decay, g);
    if (s.momentum != 0) {
      h[0] = std::fma(g, s.added, h[0] * s.momentum);
      g = s.nesterov ? std::fma(h[0], s.momentum, g) : h[0];
    }
    *parameter = std::fma(g, s.negative_rate, *parameter);
  }
};

struct TorchAdamWElement {
  static constexpr int kState = 2;  // means of the gradients and of their squares
  POSEIDON_HOST_DEVICE static void Update(const TorchScalars& s, float gradient_sum,
                                          float* parameter, float* h) {
    const float g = gradient_sum * s.gradient_scale;
    const float p = *parameter * s.decay;
    const float apart = g - h[0];
    // As lerp, which goes from the nearer end.
    h[0] = s.added < 0.5F ? std::fma(s.added, apart, h[0]) : std::fma(s.added - 1.0F, apart, g);
    h[1] = std::fma(s.added2 * g, g, h[1] * s.momentum2);
    const float divisor = std::sqrt(h[1]) / s.root_divisor + s.delta;
    *parameter = p + s.negative_rate * h[0] / divisor;
  }
};

}  // namespace poseidon
