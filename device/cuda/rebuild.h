// core/arithmetic/rebuild.h on a CUDA device: the sum over all workers of an inner-product layer's
// gradient from their stacked factors, by one GEMM of cuBLAS, and the update with it.
//
// Vectors are in device memory. Work is put in `stream` and done when that gets to it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/arithmetic/update_rule.h"
#include "device/cuda/stream.h"
#include "device/factor_update.h"

namespace poseidon::cuda {

// One thread at a time; owns cuBLAS's handle and workspace, so one for each device is enough.
class GradientRebuilder {
 public:
  // For the device that is current. Throws Error if cuBLAS can't be used.
  GradientRebuilder();
  ~GradientRebuilder();
  GradientRebuilder(const GradientRebuilder&) = delete;
  GradientRebuilder& operator=(const GradientRebuilder&) = delete;

  // RebuildGradient of core/arithmetic/rebuild.h: gradient = [ u^T v , column sums of u ]. In
  // float32, without TF32; the order of summation is cuBLAS's, so bits differ from the host's and
  // may differ between kinds of devices.
  void Rebuild(int64_t outputs, int64_t inputs, std::span<const float> u, std::span<const float> v,
               std::span<float> gradient, CudaStream stream);

  // Rebuild into memory.gradient, and Update with it, in the same stream, so that the host takes no
  // part.
  void RebuildAndUpdate(const ProductUpdate& layer, int64_t iteration,
                        const FactorUpdate::Memory& memory, CudaStream stream);

 private:
  struct Handle;
  std::unique_ptr<Handle> handle_;
};

}  // namespace poseidon::cuda
