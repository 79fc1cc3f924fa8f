// Products of matrices for layers, where libtorch's own are slower than they need be: on a host
// without MKL it hands them to OpenBLAS, which writes zeros first and copies both factors. The few
// rows of a batch don't pay for that. oneDNN, which computes libtorch's convolutions, multiplies
// InnerProduct's matrices in 0.7 of the time (docs/measurements/caffe.md).
#pragma once

#include <ATen/core/Tensor.h>

namespace poseidon {

// Writes `left` times `right` into `product`, or adds it. All are matrices on one device, and
// `product` shares no memory with the others. By oneDNN where the build has it and the matrices are
// float32 in the host's memory, with rows or columns that lie densely; otherwise by libtorch.
//
//   at::Tensor top = at::empty({rows, outputs});
//   Multiply(data, weights.t(), false, top);
void Multiply(const at::Tensor& left, const at::Tensor& right, bool add, const at::Tensor& product);

}  // namespace poseidon
