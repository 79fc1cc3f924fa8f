// Launching of the operations of device/cuda/each.h. Included only where CUDA is compiled.
#pragma once

#include "device/cuda/check.h"
#include "device/cuda/each.h"
#include "device/cuda/stream.h"

namespace poseidon::cuda {

template <typename Operation>
__global__ void EachKernel(Operation operation, size_t quads, size_t count) {
  Treat(operation, size_t{blockIdx.x} * blockDim.x + threadIdx.x, quads, count);
}

// Treats `count` floats in the stream; throws Error if the kernel, which `what` names, can't start.
template <typename Operation>
void LaunchEach(const Operation& operation, size_t count, CudaStream stream, const char* what) {
  if (count == 0) return;  // a launch of no blocks is an error
  const size_t quads = QuadsOf(operation, count);
  EachKernel<<<BlocksFor(ThreadsFor(quads, count)), kBlockThreads, 0, stream>>>(operation, quads,
                                                                                count);
  CheckLaunch(what);
}

}  // namespace poseidon::cuda
