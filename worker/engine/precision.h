// Precision: the arithmetic that a training engine (worker/torch/torch_engine.h) computes in.
#pragma once

#include <cstdint>

namespace poseidon {

// Parameters, their gradients and updates are float32 in any case; worker/torch/torch_precision.h
// says what the others change.
enum class Precision { kFloat32, kFloat16, kBfloat16 };

// Dynamic loss scaling, for kFloat16 (worker/torch/torch_loss_scaler.h).
struct LossScaling {
  // Above 0; a power of two changes no bit of a gradient. High, as it is halved in a few iterations
  // to what the net bears, while growing takes thousands: Micikevicius et al., arXiv 1710.03740,
  // section 3.2, start high, too, with scales of up to 32768 for nets that need one. 2^16 is also
  // what others' schemes begin with.
  float initial_scale = 65536;
  // Iterations without an overflow until the scale is doubled; at least 1. Each doubling too many
  // loses some layers' gradients of one iteration, so that at 2000 that is at most 1 in 2000.
  int64_t growth_interval = 2000;
};

}  // namespace poseidon
