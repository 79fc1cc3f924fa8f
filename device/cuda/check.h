// Errors of CUDA calls. Included only where CUDA is compiled.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include "core/error.h"

namespace poseidon {

// Throws Error with CUDA's words if a call has failed; `what` says what for.
inline void CheckCuda(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // or this thread's next launch would be blamed
  throw Error(ExitCode::kFailure, "CUDA can't " + what + ": " + cudaGetErrorString(error));
}

// Throws Error if the kernel launch just before has failed.
inline void CheckLaunch(const char* kernel) {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) CheckCuda(error, std::string("start kernel ") + kernel);
}

// Threads of a block of a kernel that treats each float alone: eight warps, so that a
// multiprocessor has several blocks to choose from.
inline constexpr unsigned kBlockThreads = 256;

// Blocks of so many threads for so many floats.
inline unsigned BlocksFor(size_t floats) {
  return static_cast<unsigned>((floats + kBlockThreads - 1) / kBlockThreads);
}

}  // namespace poseidon
