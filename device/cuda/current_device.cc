#include "device/cuda/current_device.h"

#include <cuda.h>
#include <cuda_runtime.h>

#include <string>

#include "device/cuda/check.h"

namespace poseidon {
namespace {

// A function of the driver's; null if there is none. Not linked: a program starts without a driver.
void* DriverFunction(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kSince = 7000;  // CUDA 7.0, the first to have what is asked for here
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &function, kSince, cudaEnableDefault, &found);
#else
  const cudaError_t error = cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found);
#endif
  return error == cudaSuccess ? function : nullptr;
}

// To make a device current makes a context on it, of half a GiB: not where there is none. A thread
// that has used no device says that its current one is device 0.
bool HasContext(int device) {
  static void* const function = DriverFunction("cuDevicePrimaryCtxGetState");
  if (function == nullptr) return true;
  unsigned flags = 0;
  int active = 1;
  reinterpret_cast<decltype(&cuDevicePrimaryCtxGetState)>(function)(device, &flags, &active);
  return active != 0;
}

}  // namespace

// Every copy comes this way, nearly always with the device already current.
CurrentCudaDevice::CurrentCudaDevice(int index) : index_(index) {
  CheckCuda(cudaGetDevice(&before_), "say which device is current");
  CheckCuda(cudaSetDevice(index), "use device " + std::to_string(index));
}

CurrentCudaDevice::CurrentCudaDevice(int index, std::nothrow_t /*nothrow*/) noexcept
    : index_(index), before_(index) {
  if (cudaGetDevice(&before_) != cudaSuccess || cudaSetDevice(index) != cudaSuccess) {
    before_ = index;  // nothing to go back to
    cudaGetLastError();
  }
}

CurrentCudaDevice::~CurrentCudaDevice() {
  if (before_ != index_ && HasContext(before_)) cudaSetDevice(before_);
}

}  // namespace poseidon
