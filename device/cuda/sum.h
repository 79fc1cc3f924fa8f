// core/arithmetic/sum.h on a CUDA device.
//
// Vectors are in device memory. Work is put in `stream` and done when that gets to it. Any thread
// may call. Throws Error if CUDA refuses the launch.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "device/cuda/stream.h"

namespace poseidon::cuda {

// accumulator[i] += addend[i]; they have the same size and don't overlap.
void AddInto(std::span<float> accumulator, std::span<const float> addend, CudaStream stream);

// floats[i] *= factor.
void Scale(std::span<float> floats, float factor, CudaStream stream);

// Why the GPU that is current can't run these kernels, in CUDA's words, nor any others of the
// build, which are all made for the same GPUs (POSEIDON_CUDA_ARCHITECTURES); nothing if it can.
// Throws Error if CUDA fails otherwise.
std::optional<std::string> WhyNoKernelRuns();

}  // namespace poseidon::cuda
