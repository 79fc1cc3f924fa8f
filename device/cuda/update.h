// core/arithmetic/update_rule.h's Update on a CUDA device: the same arithmetic
// (core/arithmetic/update_element.h), and the same bits.
//
// Vectors are in device memory; what they must be is said there. Work is put in `stream` and done
// when that gets to it. Any thread may call. Throws Error if CUDA refuses the launch.
#pragma once

#include <cstdint>
#include <span>

#include "core/arithmetic/update_rule.h"
#include "device/cuda/stream.h"

namespace poseidon::cuda {

void Update(const UpdateStep& step, std::span<const float> gradient_sum,
            std::span<float> parameters, std::span<float> optimizer_state, CudaStream stream);

void UpdateDeferred(const UpdateStep& step, std::span<float> parameters,
                    std::span<float> optimizer_state, CudaStream stream);

}  // namespace poseidon::cuda
