// Trainings over real sockets whose gradients and parameters are in the memory of a device come to
// the bits of those without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "client/device_stage.h"
#include "client/host_device.h"
#include "client/session_exchange.h"
#include "core/random.h"
#include "scheduler/information_book.h"
#include "scheduler/planner.h"
#include "tests/simulation/socket_training.h"

namespace poseidon {
namespace {

// The net of a worker in a device's memory.
class DeviceNet {
 public:
  DeviceNet(Session& session, const TrainingWork& work)
      : session_(session),
        work_(work),
        device_({.name = "host device", .before_copy = [this](auto, auto) { Delay(); }}),
        compute_(device_.MakeStream()) {
    for (int l = 0; l < work.model.layers_size(); ++l) {
      const size_t floats = session.values(l).size();
      const InnerProductSpec& product = work.model.layers(l).inner_product();
      Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
      layer.values.resize(floats);
      layer.gradient.resize(floats);
      layer.u.resize(product.rows() * product.outputs());
      layer.v.resize(product.rows() * product.inputs());
    }
  }

  DeviceReplica replica() {
    DeviceReplica replica{&device_, {}};
    for (const auto& layer : layers_) {
      replica.layers.push_back({{layer->values}, {layer->gradient}, layer->u, layer->v});
    }
    return replica;
  }

  // Puts the backward pass in the stream, after which nobody may read the parameters.
  void Backward(int l) {
    const bool dense = !session_.gradient(l).dense.empty();
    device_.Run(compute_, [this, l, dense, rank = session_.rank(),
                           iteration = session_.iteration()] {
      Layer& layer = *layers_[l];
      const GradientBuffers buffers =
          dense ? GradientBuffers{layer.gradient, {}, {}} : GradientBuffers{{}, layer.u, layer.v};
      work_.arithmetic.gradient(rank, iteration, l, layer.values, buffers);
      std::fill(layer.values.begin(), layer.values.end(), std::numeric_limits<float>::quiet_NaN());
    });
  }

  std::span<const DeviceStream> streams() const { return {&compute_, 1}; }
  const std::vector<float>& values(int l) const { return layers_[l]->values; }

 private:
  struct Layer {
    std::vector<float> values, gradient, u, v;
  };

  // Up to half a millisecond, in no order.
  void Delay() {
    std::this_thread::sleep_for(std::chrono::microseconds(
        DeriveSeed(static_cast<uint64_t>(session_.rank()), ++copies_) % 500));
  }

  Session& session_;
  const TrainingWork& work_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::atomic<uint64_t> copies_ = 0;
  HostDevice device_;
  DeviceStream compute_;
};

Parameters TrainOnDevice(Session& session, const TrainingWork& work) {
  const int layers = work.model.layers_size();
  DeviceNet net(session, work);
  SessionExchange exchange(session);
  DeviceStage stage(exchange, {net.replica()});
  while (session.iteration() < work.iterations) {
    for (int layer = 0; layer < layers; ++layer) stage.WaitFresh(layer, net.streams());
    for (int layer = layers - 1; layer >= 0; --layer) {
      net.Backward(layer);
      stage.GradientReady(layer, net.streams());
    }
    stage.EndIteration();
    if (session.EndIteration({})) stage.PlanChanged();
  }
  Parameters parameters;
  for (int layer = 0; layer < layers; ++layer) stage.WaitFresh(layer, net.streams());
  stage.Drain();
  for (int layer = 0; layer < layers; ++layer) parameters.push_back(net.values(layer));
  return parameters;
}

std::unique_ptr<Device> MakeHostDevice() {
  return std::make_unique<HostDevice>(HostDevice::Options{});
}

TEST(DeviceTraining, MixedSchemesComeToTheBitsOfHosts) {
  const SimulatedClusterOptions options = MixedTraining(10, std::chrono::microseconds(50));
  EXPECT_EQ(TrainOverSockets(options, nullptr, TrainOnDevice, MakeHostDevice),
            TrainOverSockets(options));
}

TEST(DeviceTraining, RandomTrainingsComeToTheBitsOfHosts) {
  for (uint64_t seed = 100; seed < 105; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    options.job.mutable_communication()->set_deterministic(true);
    EXPECT_EQ(TrainOverSockets(options, nullptr, TrainOnDevice, MakeHostDevice),
              TrainOverSockets(options));
  }
}

// The old plan's memory goes while copies from it may be under way.
TEST(DeviceTraining, GoesOverToAnotherPlan) {
  SimulatedClusterOptions options = MixedTraining(100, std::chrono::microseconds(50));
  options.job.mutable_communication()->set_policy(Communication::ALL_PS);
  options.work.model.mutable_update_rule()->set_base_lr(0.001F);
  Communication other = options.job.communication();
  other.set_kv_pair_bytes(28);
  other.set_update_at(Communication::WORKERS);
  wire::PlanAndModel next;
  *next.mutable_model() = options.work.model;
  *next.mutable_plan() = MakePlan(InformationBook(options.work.model, 4, 2), other);
  const Parameters on_device = TrainOverSockets(options, &next, TrainOnDevice, MakeHostDevice);
  EXPECT_EQ(on_device, TrainOverSockets(options));
}

}  // namespace
}  // namespace poseidon
