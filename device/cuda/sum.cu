#include <glog/logging.h>

#include "device/cuda/launch_each.h"
#include "device/cuda/sum.h"

namespace poseidon::cuda {

void AddInto(std::span<float> accumulator, std::span<const float> addend, CudaStream stream) {
  CHECK_EQ(accumulator.size(), addend.size());
  LaunchEach(AddEach{accumulator.data(), addend.data()}, addend.size(), stream, "AddEach");
}

void Scale(std::span<float> floats, float factor, CudaStream stream) {
  LaunchEach(ScaleEach{floats.data(), factor}, floats.size(), stream, "ScaleEach");
}

std::optional<std::string> WhyNoKernelRuns() {
  cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, EachKernel<ScaleEach>);
  // The first two are of code for other architectures only, the latter two of a driver that can't
  // make machine code of the PTX.
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
      error == cudaErrorUnsupportedPtxVersion || error == cudaErrorJitCompilerNotFound) {
    cudaGetLastError();  // or this thread's next launch would be blamed
    return cudaGetErrorString(error);
  }
  CheckCuda(error, "look at a kernel");
  return std::nullopt;
}

}  // namespace poseidon::cuda
