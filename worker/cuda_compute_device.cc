#include "worker/cuda_compute_device.h"

#include <chrono>
#include <future>
#include <utility>

#include "core/error.h"
#include "device/cuda/cuda_device.h"

#if POSEIDON_WITH_CUDA
#include "device/cuda/current_device.h"
#include "device/cuda/factor_update.h"
#include "device/cuda/gradient_packer.h"
#include "device/cuda/sum.h"
#endif
#if POSEIDON_WITH_NCCL
#include "device/cuda/nccl_reduction.h"
#endif

namespace poseidon {
namespace {

#if POSEIDON_WITH_CUDA
// How often a wait looks whether the device has failed, after which nobody is called back.
constexpr std::chrono::milliseconds kTick(100);

class CudaComputeDevice : public ComputeDevice {
 public:
  explicit CudaComputeDevice(int index)
      : index_(index),
        device_(MakeCudaDevice(index)),
        engine_device_(*device_, DeviceOfEngine::Computes::kInStream, nullptr, index),
        factor_update_(MakeCudaFactorUpdate(index)),
        packer_(MakeCudaGradientPacker(index)) {}

  Device& device() override { return *device_; }
  DeviceStream stream() const override { return nullptr; }
  std::optional<int> cuda_device() const override { return index_; }
  EngineDevice* engine_device() override { return &engine_device_; }
  FactorUpdate* factor_update() override { return factor_update_.get(); }
  GradientPacker* packer() override { return packer_.get(); }
  void Run(std::function<void()> work) override { work(); }

  void Wait() override {
    const auto done = std::make_shared<std::promise<void>>();
    const std::future<void> future = done->get_future();
    device_->Notify(stream(), [done] { done->set_value(); });
    while (future.wait_for(kTick) != std::future_status::ready) device_->Check();
  }

  void AddInto(std::span<float> sum, std::span<const float> addend) override {
    const CurrentCudaDevice current(index_);
    cuda::AddInto(sum, addend, nullptr);
  }
  void Scale(std::span<float> floats, float factor) override {
    const CurrentCudaDevice current(index_);
    cuda::Scale(floats, factor, nullptr);
  }

 private:
  int index_;
  std::unique_ptr<Device> device_;
  DeviceOfEngine engine_device_;
  std::unique_ptr<FactorUpdate> factor_update_;
  std::unique_ptr<GradientPacker> packer_;
};
#endif

}  // namespace

std::unique_ptr<ComputeDevice> MakeCudaComputeDevice(int index) {
#if POSEIDON_WITH_CUDA
  return std::make_unique<CudaComputeDevice>(index);
#else
  MakeCudaDevice(index);  // says that there is none
  return nullptr;
#endif
}

std::unique_ptr<LocalReduction> MakeCudaReduction(
    [[maybe_unused]] const std::vector<int>& indices) {
#if POSEIDON_WITH_NCCL
  return MakeNcclReduction(indices);
#else
  throw ConfigError(
      "cluster.devices_per_worker is more than 1, but this program was built without NCCL, by "
      "which several GPUs of a worker add up their gradients; build it where CMake finds NCCL, or "
      "start a worker for each GPU");
#endif
}

}  // namespace poseidon
