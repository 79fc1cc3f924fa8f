// ParameterUpdate (device/parameter_update.h) on a GPU: one kernel (device/cuda/update.h).
#pragma once

#include <memory>

#include "device/parameter_update.h"

namespace poseidon {

// On GPU number `index`.
std::unique_ptr<ParameterUpdate> MakeCudaParameterUpdate(int index);

}  // namespace poseidon
