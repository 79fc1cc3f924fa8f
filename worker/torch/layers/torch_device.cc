#include "worker/torch/layers/torch_device.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdint>
#include <string>

#include "core/error.h"

namespace poseidon {
namespace {

// Where libtorch has the switch; 1.13 has not.
template <typename Context>
void ForbidBfloat16Sums(Context& context) {
  if constexpr (requires { context.setAllowBF16ReductionCuBLAS(false); }) {
    context.setAllowBF16ReductionCuBLAS(false);
  }
}

}  // namespace

at::Device ToTorchDevice(std::optional<int> cuda_device) {
  if (!cuda_device) return at::kCPU;
  if (!c10::impl::hasDeviceGuardImpl(at::kCUDA)) {
    throw ConfigError(
        "the net is to be computed on CUDA device " + std::to_string(*cuda_device) +
        ", but this build's libtorch has no CUDA; build with one that has (docs/gpu.md), or train "
        "on the CPU");
  }
  const int devices = c10::impl::VirtualGuardImpl(at::kCUDA).deviceCount();
  if (*cuda_device < 0 || *cuda_device >= devices) {
    throw ConfigError("the net is to be computed on CUDA device " + std::to_string(*cuda_device) +
                      ", but libtorch finds " +
                      (devices == 0 ? "none here; train on the CPU, or on a machine with a GPU"
                                    : "only " + std::to_string(devices) +
                                          " here, numbered from 0; use one of them"));
  }
  return at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*cuda_device));
}

void SetCudaArithmetic(bool deterministic, bool tf32) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuDNN(tf32);
  context.setAllowTF32CuBLAS(tf32);
  context.setAllowFP16ReductionCuBLAS(false);
  ForbidBfloat16Sums(context);
  if (deterministic) context.setDeterministicCuDNN(true);
}

at::Tensor View(std::span<float> values, at::IntArrayRef shape, at::Device device) {
  return at::from_blob(values.data(), shape, at::TensorOptions(at::kFloat).device(device));
}

void CopyFromHost(std::span<const float> from, std::span<float> to, at::Device device) {
  if (to.empty()) return;
  const auto count = static_cast<int64_t>(to.size());
  // For at::from_blob, which takes no const memory; it is only read.
  const std::span<float> readable(const_cast<float*>(from.data()), from.size());
  View(to, {count}, device).copy_(View(readable, {count}, at::kCPU));
}

std::vector<float> CopyToHost(std::span<float> from, at::Device device) {
  std::vector<float> to(from.size());
  if (to.empty()) return to;
  const auto count = static_cast<int64_t>(to.size());
  View(to, {count}, at::kCPU).copy_(View(from, {count}, device));
  return to;
}

bool AllFinite(std::span<float> values, at::Device device) {
  if (values.empty()) return true;
  return View(values, {static_cast<int64_t>(values.size())}, device).isfinite().all().item<bool>();
}

at::Tensor CopyInStream(const at::Tensor& host, at::Device device) {
  const c10::DeviceGuard guard(device);  // whose driver pins the memory
  const at::Tensor pinned = at::empty(host.sizes(), host.options().pinned_memory(true));
  pinned.copy_(host);
  return pinned.to(host.options().device(device), /*non_blocking=*/true);
}

void Synchronize(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
}

}  // namespace poseidon
