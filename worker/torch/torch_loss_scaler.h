// LossScaler: keeps float16's gradients in its range.
//
// float16 has no numbers below 6e-8, and gradients often are. So the backward pass starts with the
// loss's gradient times a scale, which multiplies all gradients, and a layer's gradient is divided
// by it, in float32, before it is handed out (Micikevicius et al., Mixed precision training, arXiv
// 1710.03740, section 3.2). The scale adapts: halved after a pass with an overflow, doubled after
// `growth_interval` passes without one.
//
// The usual scheme skips the whole update where any gradient overflows. Here layers leave as they
// are born and are summed with those of other workers: when an overflow shows, layers above it are
// on their way, and no worker knows another's. So each layer decides for itself: where its gradient
// is not finite, zeros are handed out, as if this worker's batch had nothing to say about that
// layer. Overflows are rare, and the sum over the other workers and the layer's momentum still move
// it then. As gradients are divided before they leave, each worker has a scale of its own, and
// nothing needs to be agreed on. What passes one iteration adds up are scaled and judged each by
// itself.
//
// A gradient that is not finite at the least scale, 1, is not float16's fault: all the layer's
// gradient is NaN then, so that the training's checks find it. The loss itself is never scaled, so
// one that is not finite stays so.
//
// All of it happens on the device, in its stream; the host waits for nothing. What has happened is
// copied to the host and logged once it has arrived, an iteration or two later.
//
// One thread at a time. On the CPU it does the same at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/engine/precision.h"

namespace poseidon {

class LossScaler {
 public:
  // For layers of these names. Throws ConfigError for options that mean nothing.
  LossScaler(std::vector<std::string> layers, const LossScaling& options, at::Device device);

  // A scalar of the device's: what the loss's gradient is to be multiplied by in this pass.
  const at::Tensor& scale() const { return scale_; }

  // Gradients of this pass are unscaled: by Unscale, or by a graph that has captured it. A pass
  // that is given up afterwards counts all the same.
  void BeginBackward() { used_ = true; }
  // Divides a layer's gradient (float32, of any shape) by the scale, in its place; zeros if it is
  // not finite. Once a layer and pass.
  void Unscale(int layer, const at::Tensor& gradient);
  // After all layers: adapts the scale to what was found. Nothing without BeginBackward.
  void EndPass();

  // For tests and people: as of the last EndPass. Waits for the device.
  struct State {
    float scale;
    std::vector<int64_t> overflows;  // by layer: passes whose gradient was not finite
  };
  State Read() const;

 private:
  void Adapt();
  void SetInstead();
  void Log();
  void LogChange(const State& state);

  std::vector<std::string> layers_;
  double least_;  // the scale may be
  double most_;
  double growth_interval_;
  bool used_ = false;  // in this pass

  // The scale, its inverse, passes since it changed, and overflows by layer: one tensor, so that
  // one copy brings it to the host. Float32 counts exactly to 2^24.
  at::Tensor state_;
  at::Tensor scale_;
  at::Tensor inverse_;
  at::Tensor passes_;
  at::Tensor overflows_;

  at::Tensor norms_;    // by layer: the largest magnitude in the scaled gradient
  at::Tensor finite_;   // by layer: whether that is a number
  at::Tensor instead_;  // of a gradient that is not finite: 0, or NaN at the least scale

  // On its way to the host since the event; and what of it was logged.
  at::Tensor on_host_;
  std::optional<c10::Event> sent_;
  State logged_;
};

}  // namespace poseidon
