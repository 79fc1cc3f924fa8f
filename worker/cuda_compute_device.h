// A GPU as a ComputeDevice, and a worker's devices where they may be GPUs. In a build without CUDA
// there are none, and the functions say so.
#pragma once

#include <memory>
#include <vector>

#include "device/local_reduction.h"
#include "worker/engine/compute_device.h"
#include "worker/worker_devices.h"

namespace poseidon {

// The GPU number `index` of this machine. Its stream is CUDA's default one, in which libtorch
// computes if nobody says otherwise. With `own_thread` work is launched from a thread of its own.
// Throws ConfigError if it can't be used.
std::unique_ptr<ComputeDevice> MakeCudaComputeDevice(int index, bool own_thread = false);

// Among the worker's GPUs. Throws ConfigError in a build without NCCL.
std::unique_ptr<LocalReduction> MakeCudaReduction(const std::vector<int>& indices);

// What the job asks for, on the CPU or on GPUs. These are counted from `first`, beginning again
// with 0 after the machine's last: workers may share them, but no worker has one twice. Throws
// ConfigError that says why there are not those that the job asks for.
WorkerDevices MakeWorkerDevices(const JobConfig& config, int first);

}  // namespace poseidon
