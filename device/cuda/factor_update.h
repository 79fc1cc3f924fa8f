// FactorUpdate on a GPU: cuBLAS's GEMM and the kernels of device/cuda/update.h. In a build without
// CUDA there is none.
//
// Workers' parameters stay the same bits where their GPUs are of one kind and run one version of
// cuBLAS, which chooses the order of summation.
#pragma once

#include <memory>

#include "device/factor_update.h"

namespace poseidon {

// On the GPU number `index`. Throws Error if cuBLAS can't be used, ConfigError without CUDA.
std::unique_ptr<FactorUpdate> MakeCudaFactorUpdate(int index);

}  // namespace poseidon
