// A worker whose net is on host devices, for tests of DeviceStaging.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "client/staging/device_staging.h"
#include "device/host_device.h"
#include "tests/unit/client/device_staging_testing.h"

namespace poseidon {

// A replica of the net as a training program has it: two blobs a layer, where there is more than
// one float, and work in a stream.
class Replica {
 public:
  Replica(const std::vector<TestLayer>& layers, size_t devices, HostDevice::Options options)
      : layers_(layers), device_(std::move(options)), compute_(device_.MakeStream()) {
    for (const TestLayer& layer : layers) {
      Memory& memory = *memory_.emplace_back(std::make_unique<Memory>());
      memory.values.assign(layer.floats, kPoison);
      memory.gradient.assign(layer.floats, kPoison);
      memory.u.assign(layer.rows / devices * layer.outputs, kPoison);
      memory.v.assign(layer.factors() ? layer.rows / devices * layer.inputs() : 0, kPoison);
    }
  }

  DeviceReplica description(const TestExchange& exchange) {
    DeviceReplica replica;
    replica.device = &device_;
    for (size_t l = 0; l < layers_.size(); ++l) {
      const int layer = static_cast<int>(l);
      updated_.push_back(exchange.product_update(layer) || exchange.dense_update(layer));
    }
    const bool packs = exchange.devices_pack();
    if (exchange.devices_update()) replica.factor_update = &factor_update_;
    replica.parameter_update = &parameter_update_;
    if (packs) replica.packer = &packer_;
    for (const auto& memory : memory_) {
      replica.layers.push_back(
          {Blobs(memory->values), Blobs(memory->gradient), memory->u, memory->v});
    }
    return replica;
  }

  // Puts the layer's backward pass in the stream: reads values, writes gradient or factors. After
  // it nobody may read the values that were there, unless the device makes the next of them.
  void Backward(int layer, int index, int64_t iteration) {
    device_.Run(compute_, [=, this] {
      Memory& memory = *memory_[layer];
      if (layers_[layer].factors()) {
        TestGradient(memory.values, index, iteration, memory.u);
        TestGradient(memory.values, index + 1, iteration, memory.v);
      } else {
        TestGradient(memory.values, index, iteration, memory.gradient);
      }
      if (poisons(layer)) std::fill(memory.values.begin(), memory.values.end(), kPoison);
    });
  }
  bool poisons(int layer) const { return !updated_[layer]; }

  const Floats& values(int layer) const { return memory_[layer]->values; }
  HostDevice& device() { return device_; }
  DeviceStream compute() { return compute_; }

 private:
  struct Memory {
    Floats values, gradient, u, v;
  };
  static std::vector<std::span<float>> Blobs(Floats& floats) {
    const size_t first = floats.size() / 3;
    return {std::span(floats).first(first), std::span(floats).subspan(first)};
  }

  std::vector<TestLayer> layers_;
  std::vector<bool> updated_;
  std::vector<std::unique_ptr<Memory>> memory_;
  HostDevice device_;
  TestFactorUpdate factor_update_{device_};
  HostParameterUpdate parameter_update_{device_};
  HostGradientPacker packer_{device_};
  DeviceStream compute_;
};

// A worker with its replicas.
struct Worker {
  Worker(TestExchange& to, const std::vector<TestLayer>& layers, size_t devices,
         const HostDevice::Options& options)
      : exchange(to) {
    std::vector<DeviceReplica> descriptions;
    std::vector<HostDevice*> members;
    for (size_t d = 0; d < devices; ++d) {
      replicas.push_back(std::make_unique<Replica>(layers, devices, options));
      descriptions.push_back(replicas.back()->description(to));
      members.push_back(&replicas.back()->device());
      streams.push_back(replicas.back()->compute());
    }
    if (devices > 1) reduction = std::make_unique<HostLocalReduction>(members);
    stage = std::make_unique<DeviceStaging>(exchange, descriptions, reduction.get());
  }
  ~Worker() { stage.reset(); }

  // Backward in the order of `order`, which a real net would not change.
  void Iterate(int rank, const std::vector<int>& order) {
    for (size_t l = 0; l < order.size(); ++l) stage->WaitFresh(static_cast<int>(l), streams);
    for (const int layer : order) {
      for (size_t d = 0; d < replicas.size(); ++d) {
        const int index = rank * static_cast<int>(replicas.size()) + static_cast<int>(d);
        replicas[d]->Backward(layer, index, exchange.iteration());
      }
      stage->GradientReady(layer, streams);
    }
    stage->EndIteration();
    exchange.EndIteration();
  }

  TestExchange& exchange;
  std::vector<std::unique_ptr<Replica>> replicas;
  std::vector<DeviceStream> streams;
  std::unique_ptr<LocalReduction> reduction;
  std::unique_ptr<DeviceStaging> stage;
};

}  // namespace poseidon
