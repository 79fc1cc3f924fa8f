// A byte a float, and a scale for each block (core/arithmetic/codec_int8.cc): a block of floats is
// a block of threads here.
#include <cstring>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/int8.h"
#include "device/cuda/check.h"
#include "device/cuda/codec_kernels.h"

namespace poseidon::cuda {
namespace {

static_assert(Int8::kBlock == kBlockThreads);
constexpr size_t kBytes = sizeof(float) + Int8::kBlock;  // of a whole block
constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffff;

__device__ uint32_t LargestOfWarp(uint32_t value) {
  for (unsigned step = kWarp / 2; step > 0; step /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, value, static_cast<int>(step));
    value = other > value ? other : value;
  }
  return value;
}

// The same for all threads.
__device__ uint32_t LargestOfBlock(uint32_t value) {
  __shared__ uint32_t largest[Int8::kBlock / kWarp];
  const uint32_t of_warp = LargestOfWarp(value);
  if (threadIdx.x % kWarp == 0) largest[threadIdx.x / kWarp] = of_warp;
  __syncthreads();
  uint32_t result = 0;
  for (const uint32_t one : largest) result = one > result ? one : result;
  return result;
}

__global__ void Int8EncodeKernel(const float* values, float* residual, size_t floats,
                                 unsigned char* out) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool used = i < floats;
  float corrected = 0;
  if (used) corrected = residual == nullptr ? values[i] : residual[i] + values[i];
  const Int8Scale scale =
      Int8::ScaleFor(LargestOfBlock(__float_as_uint(corrected) & Float32::kMagnitude));

  unsigned char* const frame = out + blockIdx.x * kBytes;
  if (threadIdx.x == 0) memcpy(frame, &scale.step, sizeof(scale.step));
  if (!used) return;
  const int8_t byte = scale.inverse == 0 ? int8_t{0} : Int8::Quantize(corrected, scale.inverse);
  frame[sizeof(scale.step) + threadIdx.x] = static_cast<unsigned char>(byte);
  if (residual != nullptr) {
    residual[i] = Lose::Merge(corrected, Int8::Dequantize(byte, scale.step));
  }
}

template <typename Merge>
__global__ void Int8ApplyKernel(const unsigned char* encoded, float* x, size_t floats) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= floats) return;
  const unsigned char* const frame = encoded + blockIdx.x * kBytes;
  float step;
  memcpy(&step, frame, sizeof(step));
  const auto byte = static_cast<int8_t>(frame[sizeof(step) + threadIdx.x]);
  x[i] = Merge::Merge(x[i], Int8::Dequantize(byte, step));
}

}  // namespace

void EncodeInt8(std::span<const float> values, std::span<float> residual, std::span<std::byte> out,
                CudaStream stream) {
  Int8EncodeKernel<<<BlocksFor(values.size()), kBlockThreads, 0, stream>>>(
      values.data(), residual.data(), values.size(), reinterpret_cast<unsigned char*>(out.data()));
  CheckLaunch("Int8EncodeKernel");
}

void ApplyInt8(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
               CudaStream stream) {
  const auto* const from = reinterpret_cast<const unsigned char*>(encoded.data());
  const unsigned blocks = BlocksFor(x.size());
  if (meeting == Meeting::kAdd) {
    Int8ApplyKernel<Add><<<blocks, kBlockThreads, 0, stream>>>(from, x.data(), x.size());
  } else {
    Int8ApplyKernel<Assign><<<blocks, kBlockThreads, 0, stream>>>(from, x.data(), x.size());
  }
  CheckLaunch("Int8ApplyKernel");
}

}  // namespace poseidon::cuda
