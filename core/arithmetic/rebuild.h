// The sum over all workers of an inner-product layer's gradient, from their stacked factors.
#pragma once

#include <cstdint>
#include <span>

namespace poseidon {

// gradient = [ u^T v , column sums of u ]: weights outputs x inputs, then, if `gradient` has room
// for it, the bias of `outputs` floats. u is rows x outputs, v rows x inputs, row-major. One GEMM
// (OpenBLAS); its order of summation depends only on the shapes and the number of BLAS threads.
// Thread-safe.
void RebuildGradient(int64_t outputs, int64_t inputs, std::span<const float> u,
                     std::span<const float> v, std::span<float> gradient);

}  // namespace poseidon
