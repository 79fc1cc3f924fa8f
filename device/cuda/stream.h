// What the headers of device/cuda say of CUDA without its own headers, so that they compile
// everywhere.
#pragma once

// The CUDA runtime's own name for what cudaStream_t points to.
struct CUstream_st;

namespace poseidon {

// A cudaStream_t.
using CudaStream = CUstream_st*;

}  // namespace poseidon
