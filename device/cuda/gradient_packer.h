// GradientPacker on a GPU, by the kernels of device/cuda/codec.h. In a build without CUDA there is
// none.
#pragma once

#include <memory>

#include "device/gradient_packer.h"

namespace poseidon {

// On the GPU number `index`. Throws ConfigError without CUDA.
std::unique_ptr<GradientPacker> MakeCudaGradientPacker(int index);

}  // namespace poseidon
