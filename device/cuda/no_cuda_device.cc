// In the place of cuda_device.cc where there is no CUDA compiler.
#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/factor_update.h"
#include "device/cuda/gradient_packer.h"

namespace poseidon {

CudaDevices FindCudaDevices() {
  return {.count = 0, .why_none = "this program was built without CUDA"};
}

int CudaDeviceOf(const void* /*memory*/) {
  throw Error(ExitCode::kFailure, "the memory is no GPU's: this program was built without CUDA");
}

std::unique_ptr<Device> MakeCudaDevice(int /*index*/) {
  throw ConfigError(
      "training.device is cuda, but this program was built without CUDA; build it where CMake "
      "finds "
      "nvcc and with POSEIDON_CUDA not OFF, or train on the CPU");
}

std::unique_ptr<FactorUpdate> MakeCudaFactorUpdate(int /*index*/) {
  throw ConfigError("this program was built without CUDA");
}

std::unique_ptr<GradientPacker> MakeCudaGradientPacker(int /*index*/) {
  throw ConfigError("this program was built without CUDA");
}

}  // namespace poseidon
