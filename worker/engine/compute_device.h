// ComputeDevice: where a replica of the net is computed: a Device (device/device.h) with the stream
// that its engine's work is in.
//
// Thread safety: the training thread's, and so is all that throws.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "device/device.h"
#include "device/factor_update.h"
#include "device/gradient_packer.h"
#include "device/host_device.h"
#include "device/launch_thread.h"
#include "device/parameter_update.h"
#include "worker/engine/device_of_engine.h"

namespace poseidon {

class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;

  virtual Device& device() = 0;
  virtual DeviceStream stream() const = 0;
  // The GPU's number, if it is one.
  virtual std::optional<int> cuda_device() const { return std::nullopt; }
  // What engines see of it; null: they compute in the host's own memory.
  virtual EngineDevice* engine_device() { return nullptr; }
  // By which layers that workers update are updated on the device, those under SFB and others; both
  // null: they are on the host.
  virtual FactorUpdate* factor_update() { return nullptr; }
  virtual ParameterUpdate* parameter_update() { return nullptr; }
  // By which gradients are packed on the device; null: they are on the host.
  virtual GradientPacker* packer() { return nullptr; }

  // Does the work of an engine. On a GPU, before this returns, or in a thread of its own
  // (device/launch_thread.h): when AwaitLaunches returns, what the engine makes the GPU do is in
  // the stream. On a host, in the stream, by its thread. A thread is always the same, so that what
  // libraries keep for each thread is the engine's own.
  virtual void Run(std::function<void()> work) = 0;
  // Until all that was asked for is in the stream: before anybody else puts something there. Throws
  // what work has thrown.
  virtual void AwaitLaunches() {}
  // Until all that is in the stream is done. Throws what work has thrown, or Error if the device
  // has failed.
  virtual void Wait() = 0;
  void RunAndWait(std::function<void()> work) {
    Run(std::move(work));
    Wait();
  }
  // Throws what work has thrown, after which the device has failed; nothing else.
  virtual void RethrowFromWork() {}

  // In the stream, of floats in the device's memory: sum[i] += addend[i], floats[i] *= factor.
  virtual void AddInto(std::span<float> sum, std::span<const float> addend) = 0;
  virtual void Scale(std::span<float> floats, float factor) = 0;
};

// A thread of the host's.
class HostComputeDevice : public ComputeDevice {
 public:
  // `like_a_gpu`: updates, packs, has a thread that launches, and batches are copied to it, for
  // tests. On one host it is done once better than for each replica, and batches are where they are
  // needed.
  explicit HostComputeDevice(HostDevice::Options options, bool like_a_gpu = false);

  HostDevice& device() override { return device_; }
  DeviceStream stream() const override { return stream_; }
  EngineDevice* engine_device() override { return like_a_gpu_ ? &engine_device_ : nullptr; }
  FactorUpdate* factor_update() override { return like_a_gpu_ ? &factor_update_ : nullptr; }
  ParameterUpdate* parameter_update() override {
    return like_a_gpu_ ? &parameter_update_ : nullptr;
  }
  GradientPacker* packer() override { return like_a_gpu_ ? &packer_ : nullptr; }
  void Run(std::function<void()> work) override;
  void AwaitLaunches() override;
  void Wait() override;
  void RethrowFromWork() override;
  void AddInto(std::span<float> sum, std::span<const float> addend) override;
  void Scale(std::span<float> floats, float factor) override;

 private:
  std::mutex mutex_;
  std::exception_ptr thrown_;  // by work, first
  HostDevice device_;          // whose thread may still write what is above
  DeviceStream stream_;
  bool like_a_gpu_;
  DeviceOfEngine engine_device_;
  HostFactorUpdate factor_update_;
  HostParameterUpdate parameter_update_;
  HostGradientPacker packer_;
  std::optional<LaunchThread> launches_;
};

}  // namespace poseidon
