#include <glog/logging.h>

#include "device/cuda/check.h"
#include "device/cuda/sum.h"

namespace poseidon::cuda {
namespace {

__global__ void AddKernel(float* accumulator, const float* addend, size_t count) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) accumulator[i] += addend[i];
}

__global__ void ScaleKernel(float* floats, float factor, size_t count) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) floats[i] *= factor;
}

}  // namespace

void AddInto(std::span<float> accumulator, std::span<const float> addend, CudaStream stream) {
  CHECK_EQ(accumulator.size(), addend.size());
  if (addend.empty()) return;  // a launch of no blocks is an error
  AddKernel<<<BlocksFor(addend.size()), kBlockThreads, 0, stream>>>(accumulator.data(),
                                                                    addend.data(), addend.size());
  CheckLaunch("AddKernel");
}

void Scale(std::span<float> floats, float factor, CudaStream stream) {
  if (floats.empty()) return;
  ScaleKernel<<<BlocksFor(floats.size()), kBlockThreads, 0, stream>>>(floats.data(), factor,
                                                                      floats.size());
  CheckLaunch("ScaleKernel");
}

}  // namespace poseidon::cuda
