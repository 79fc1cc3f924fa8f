// POSEIDON_HOST_DEVICE: before a function that hosts and CUDA devices compile from the same source,
// so that both compute the same. Such a function calls only others of its kind, and of the standard
// library what nvcc has on devices: <cmath>, and constexpr functions.
#pragma once

#ifdef __CUDACC__
#define POSEIDON_HOST_DEVICE __host__ __device__
#else
#define POSEIDON_HOST_DEVICE
#endif
