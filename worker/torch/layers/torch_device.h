// The device that libtorch computes on: the CPU or a CUDA device.
//
// Memory comes as spans of the device's memory. On a CUDA device everything is put in libtorch's
// current stream, which nothing here changes: it is CUDA's legacy default stream. Only libtorch's
// device-agnostic interface is used, so this needs no CUDA to compile, and finds out when it runs
// whether libtorch has it.
//
// Thread safety: as libtorch; calls from different threads do not disturb each other.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <vector>

namespace poseidon {

// The CUDA device with this number, or the CPU without one. Throws ConfigError if libtorch can't
// use it.
at::Device ToTorchDevice(std::optional<int> cuda_device);

// For the whole process, of all CUDA devices: whether float32 is computed as TF32; the products of
// half types are added up in float32. Deterministic: convolutions are by algorithms that give the
// same bits each time.
void SetCudaArithmetic(bool deterministic, bool tf32);

// Float32 memory of the device as a tensor of this shape.
at::Tensor View(std::span<float> values, at::IntArrayRef shape, at::Device device);

// Between the device's memory and the host's. They return when the copy is done.
void CopyFromHost(std::span<const float> from, std::span<float> to, at::Device device);
std::vector<float> CopyToHost(std::span<float> from, at::Device device);

// A host tensor on the device, copied in the stream through pinned memory; `host` may change when
// this returns. libtorch keeps the pinned memory until the copy is done, and gives memory of the
// device that was used in the stream only to what comes after it there: a batch is never
// overwritten while it is in use.
at::Tensor CopyInStream(const at::Tensor& host, at::Device device);

// Whether all are finite numbers.
bool AllFinite(std::span<float> values, at::Device device);

// Returns when the device has done all that is in its stream.
void Synchronize(at::Device device);

}  // namespace poseidon
