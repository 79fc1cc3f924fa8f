// CudaDevice: an NVIDIA GPU as a Device. In a build without CUDA there are none, and the functions
// say so.
#pragma once

#include <memory>
#include <string>

#include "device/device.h"

namespace poseidon {

// How many GPUs this process can use; if none, why. Needs no driver, and never throws.
struct CudaDevices {
  int count = 0;
  std::string why_none;
};
CudaDevices FindCudaDevices();

// The GPU number `index` of this machine. Its pinned memory is freed with the last pointer to it;
// that waits for copies that are under way. Throws ConfigError if it can't be used.
std::unique_ptr<Device> MakeCudaDevice(int index);

// The number of the GPU whose memory `memory` points into. Throws Error if it is none's.
int CudaDeviceOf(const void* memory);

}  // namespace poseidon
