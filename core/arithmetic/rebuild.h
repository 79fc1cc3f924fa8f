// The sum over all workers of an inner-product layer's gradient, from their stacked factors.
#pragma once

#include <cstdint>
#include <span>

#include "core/arithmetic/sliced_arithmetic.h"

namespace poseidon {

// gradient = [ u^T v , column sums of u ]: weights outputs x inputs, then, if `gradient` has room
// for it, the bias of `outputs` floats. u is rows x outputs, v rows x inputs, row-major. By GEMM
// (OpenBLAS), block by block; the order of summation depends only on the shapes and the number of
// BLAS threads, and not on the blocks, where there is one such thread.
// Thread-safe.
void RebuildGradient(int64_t outputs, int64_t inputs, std::span<const float> u,
                     std::span<const float> v, std::span<float> gradient);

// Likewise, a block a slice; the memory must outlive it. Where `gradient` is empty (phantoms) there
// is only the amount, for factors of `rows` rows.
//
//     const SlicedArithmetic rebuild = SlicedRebuild(2, 3, 1, u, v, gradient);
SlicedArithmetic SlicedRebuild(int64_t outputs, int64_t inputs, int64_t rows,
                               std::span<const float> u, std::span<const float> v,
                               std::span<float> gradient);

}  // namespace poseidon
