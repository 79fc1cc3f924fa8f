#include "worker/cuda_compute_device.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "device/cuda/cuda_device.h"

#if POSEIDON_WITH_CUDA
#include "device/cuda/current_device.h"
#include "device/cuda/factor_update.h"
#include "device/cuda/gradient_packer.h"
#include "device/cuda/parameter_update.h"
#include "device/cuda/sum.h"
#endif
#if POSEIDON_WITH_NCCL
#include "device/cuda/nccl_reduction.h"
#endif

namespace poseidon {
namespace {

#if POSEIDON_WITH_CUDA
class CudaComputeDevice : public ComputeDevice {
 public:
  // Launches from a thread of its own, or from whoever asks.
  CudaComputeDevice(int index, bool own_thread)
      : index_(index),
        device_(MakeCudaDevice(index)),
        engine_device_(*device_, DeviceOfEngine::Computes::kInStream, nullptr, index),
        factor_update_(MakeCudaFactorUpdate(index)),
        parameter_update_(MakeCudaParameterUpdate(index)),
        packer_(MakeCudaGradientPacker(index)),
        done_(device_->MakeEvent()) {
    if (own_thread) launches_.emplace();
  }

  Device& device() override { return *device_; }
  DeviceStream stream() const override { return nullptr; }
  std::optional<int> cuda_device() const override { return index_; }
  EngineDevice* engine_device() override { return &engine_device_; }
  FactorUpdate* factor_update() override { return factor_update_.get(); }
  ParameterUpdate* parameter_update() override { return parameter_update_.get(); }
  GradientPacker* packer() override { return packer_.get(); }
  void Run(std::function<void()> work) override {
    if (!launches_) return work();
    launches_->Run([index = index_, work = std::move(work)] {
      const CurrentCudaDevice current(index);
      work();
    });
  }
  void AwaitLaunches() override {
    if (launches_) launches_->Await();
  }

  void Wait() override {
    AwaitLaunches();
    device_->Record(*done_, stream());
    device_->Await(*done_);
  }

  void AddInto(std::span<float> sum, std::span<const float> addend) override {
    Run([=, index = index_] {
      const CurrentCudaDevice current(index);
      cuda::AddInto(sum, addend, nullptr);
    });
  }
  void Scale(std::span<float> floats, float factor) override {
    Run([=, index = index_] {
      const CurrentCudaDevice current(index);
      cuda::Scale(floats, factor, nullptr);
    });
  }

 private:
  int index_;
  std::unique_ptr<Device> device_;
  DeviceOfEngine engine_device_;
  std::unique_ptr<FactorUpdate> factor_update_;
  std::unique_ptr<ParameterUpdate> parameter_update_;
  std::unique_ptr<GradientPacker> packer_;
  std::unique_ptr<DeviceEvent> done_;
  std::optional<LaunchThread> launches_;  // ends before what it uses
};
#endif

WorkerDevices MakeCudaDevices(const JobConfig& config, int first) {
  const int count = config.job.cluster().devices_per_worker();
  WorkerDevices made;
  const int there = FindCudaDevices().count;
  if (there > 0 && count > there) {
    throw ConfigError(config.path + ": cluster.devices_per_worker is " + std::to_string(count) +
                      ", but this machine has " + std::to_string(there) +
                      " GPUs; start more workers with fewer devices, which may share them");
  }
  std::vector<int> indices;
  for (int i = 0; i < count; ++i) {
    indices.push_back((first + i) % std::max(there, 1));
    // Where there is none, says why.
    made.devices.push_back(MakeCudaComputeDevice(indices.back(), /*own_thread=*/count > 1));
  }
  if (count > 1) made.reduction = MakeCudaReduction(indices);
  return made;
}

}  // namespace

std::unique_ptr<ComputeDevice> MakeCudaComputeDevice(int index, [[maybe_unused]] bool own_thread) {
#if POSEIDON_WITH_CUDA
  return std::make_unique<CudaComputeDevice>(index, own_thread);
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

WorkerDevices MakeWorkerDevices(const JobConfig& config, int first) {
  if (config.job.training().device() == Training::CUDA) return MakeCudaDevices(config, first);
  return MakeHostDevices(config.job.cluster().devices_per_worker());
}

}  // namespace poseidon
