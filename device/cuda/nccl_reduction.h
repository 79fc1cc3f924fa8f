// NcclReduction: LocalReduction among GPUs, by NCCL. There where CMake finds NCCL.
#pragma once

#include <memory>
#include <vector>

#include "device/local_reduction.h"

namespace poseidon {

// The GPUs' indices, in the order in which members will be given. NCCL chooses the order of
// summation, so bits differ from HostLocalReduction's. Throws Error if NCCL can't join them.
std::unique_ptr<LocalReduction> MakeNcclReduction(const std::vector<int>& devices);

}  // namespace poseidon
