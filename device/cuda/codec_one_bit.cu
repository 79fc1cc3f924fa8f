// A bit a float, and two means a block for it to stand for (core/arithmetic/codec_one_bit.cc): the
// same block of 1024 floats is a block of threads here.
#include <cstring>

#include "core/arithmetic/codec_functions.h"
#include "device/cuda/check.h"
#include "device/cuda/codec_kernels.h"

namespace poseidon::cuda {
namespace {

constexpr unsigned kFloats = 1024;  // of a block
constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffff;

struct Means {
  float positive;
  float negative;
};
constexpr size_t kBytes = sizeof(Means) + kFloats / 8;  // of a whole block

// The host adds up in so many partial sums, row after row: four vectors of four floats. What is
// left after the last whole row goes to the first vector's.
constexpr unsigned kSums = 16;
constexpr unsigned kRestSums = 4;

// Partial sum `sum` of the floats with, or without, a sign.
__device__ float PartialSum(const float* x, unsigned count, unsigned sum, bool negative) {
  float total = 0;
  const auto add = [&](float value) { total += signbit(value) == negative ? value : 0.0F; };
  const unsigned whole = count / kSums * kSums;
  for (unsigned i = sum; i < whole; i += kSums) add(x[i]);
  if (sum < kRestSums) {
    for (unsigned i = whole + sum; i < count; i += kRestSums) add(x[i]);
  }
  return total;
}

__device__ float MeanOf(const float* partial_sums, unsigned of) {
  double sum = 0;
  for (unsigned i = 0; i < kSums; ++i) sum += partial_sums[i];
  return of == 0 ? 0.0F : static_cast<float>(sum / of);
}

__global__ void OneBitEncodeKernel(const float* values, float* residual, size_t floats,
                                   unsigned char* out) {
  __shared__ float x[kFloats];
  __shared__ float sums[2 * kSums];
  __shared__ unsigned signs[kFloats / kWarp];
  __shared__ Means means;

  const size_t begin = size_t{blockIdx.x} * kFloats;
  const auto count =
      static_cast<unsigned>(floats - begin < kFloats ? floats - begin : size_t{kFloats});
  for (unsigned i = threadIdx.x; i < kFloats; i += blockDim.x) {
    float value = 0;
    if (i < count) {
      value = residual == nullptr ? values[begin + i] : residual[begin + i] + values[begin + i];
    }
    x[i] = value;
    const unsigned warp_signs = __ballot_sync(kAllLanes, signbit(value));
    if (i % kWarp == 0) signs[i / kWarp] = warp_signs;
  }
  __syncthreads();

  if (threadIdx.x < 2 * kSums) {  // one warp
    sums[threadIdx.x] =
        PartialSum(x, count, threadIdx.x % kSums, /*negative=*/threadIdx.x >= kSums);
    __syncwarp();
    unsigned negatives = 0;
    for (const unsigned word : signs) negatives += __popc(word);
    if (threadIdx.x == 0) means.positive = MeanOf(sums, count - negatives);
    if (threadIdx.x == 1) means.negative = MeanOf(sums + kSums, negatives);
  }
  __syncthreads();

  unsigned char* const frame = out + blockIdx.x * kBytes;
  if (threadIdx.x == 0) memcpy(frame, &means, sizeof(means));
  for (unsigned i = threadIdx.x; i < (count + 7) / 8; i += blockDim.x) {
    frame[sizeof(means) + i] = static_cast<unsigned char>(signs[i / 4] >> (8 * (i % 4)));
  }
  if (residual == nullptr) return;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
    residual[begin + i] = Lose::Merge(x[i], signbit(x[i]) ? means.negative : means.positive);
  }
}

template <typename Merge>
__global__ void OneBitApplyKernel(const unsigned char* encoded, float* x, size_t floats) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= floats) return;
  const unsigned char* const frame = encoded + i / kFloats * kBytes;
  const auto bit = static_cast<unsigned>(i % kFloats);
  Means means;
  memcpy(&means, frame, sizeof(means));
  const bool negative = (frame[sizeof(means) + bit / 8] >> (bit % 8) & 1U) != 0;
  x[i] = Merge::Merge(x[i], negative ? means.negative : means.positive);
}

}  // namespace

void EncodeOneBit(std::span<const float> values, std::span<float> residual,
                  std::span<std::byte> out, CudaStream stream) {
  const auto blocks = static_cast<unsigned>((values.size() + kFloats - 1) / kFloats);
  OneBitEncodeKernel<<<blocks, kBlockThreads, 0, stream>>>(
      values.data(), residual.data(), values.size(), reinterpret_cast<unsigned char*>(out.data()));
  CheckLaunch("OneBitEncodeKernel");
}

void ApplyOneBit(std::span<const std::byte> encoded, std::span<float> x, Meeting meeting,
                 CudaStream stream) {
  const auto* const from = reinterpret_cast<const unsigned char*>(encoded.data());
  const unsigned blocks = BlocksFor(x.size());
  if (meeting == Meeting::kAdd) {
    OneBitApplyKernel<Add><<<blocks, kBlockThreads, 0, stream>>>(from, x.data(), x.size());
  } else {
    OneBitApplyKernel<Assign><<<blocks, kBlockThreads, 0, stream>>>(from, x.data(), x.size());
  }
  CheckLaunch("OneBitApplyKernel");
}

}  // namespace poseidon::cuda
