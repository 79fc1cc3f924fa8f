// In the place of cuda_device.cc where there is no CUDA compiler.
#include "client/cuda/cuda_device.h"
#include "core/error.h"

namespace poseidon {

CudaDevices FindCudaDevices() {
  return {.count = 0, .why_none = "this program was built without CUDA"};
}

std::unique_ptr<Device> MakeCudaDevice(int /*index*/) {
  throw ConfigError(
      "training.device is cuda, but this program was built without CUDA; build it where CMake "
      "finds "
      "nvcc and with POSEIDON_CUDA not OFF, or train on the CPU");
}

}  // namespace poseidon
