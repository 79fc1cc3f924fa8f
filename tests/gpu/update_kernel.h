// The update rules of core/update_element.h on a CUDA device, for tests. Throws std::runtime_error
// for what CUDA can't do.
#pragma once

#include <string>
#include <vector>

#include "core/update_element.h"

namespace poseidon {

// How many devices can be used; 0, and why, if none.
struct Devices {
  int count;
  std::string why_none;
};
Devices CudaDevices();

enum class DecayKind { kNone, kL1, kL2 };

// Update() of core/update_rule.h for a rule of this type, on a device. Vectors are as there.
void UpdateOnDevice(const std::string& type, DecayKind decay, const UpdateScalars& scalars,
                    const std::vector<float>& gradient_sum, std::vector<float>& parameters,
                    std::vector<float>& history);

}  // namespace poseidon
