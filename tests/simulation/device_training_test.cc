// Trainings over real sockets whose gradients and parameters are in the memory of a device come to
// the bits of those without one.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "client/staging/device_staging.h"
#include "core/random.h"
#include "device/host_device.h"
#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "tests/simulation/socket_training.h"

namespace poseidon {
namespace {

class CountingPacker : public HostGradientPacker {
 public:
  using HostGradientPacker::HostGradientPacker;
  void Pack(const Codec& codec, std::span<const Packing> packings, DeviceStream stream) override {
    calls += static_cast<int64_t>(packings.size());
    HostGradientPacker::Pack(codec, packings, stream);
  }
  int64_t calls = 0;
};

class CountingUpdate : public HostFactorUpdate {
 public:
  using HostFactorUpdate::HostFactorUpdate;
  void Apply(const ProductUpdate& layer, int64_t iteration, const Memory& memory,
             DeviceStream stream) override {
    ++calls;
    HostFactorUpdate::Apply(layer, iteration, memory, stream);
  }
  int64_t calls = 0;
};

class CountingParameterUpdate : public HostParameterUpdate {
 public:
  using HostParameterUpdate::HostParameterUpdate;
  void Apply(const UpdateStep& step, std::span<const float> gradient_sum,
             std::span<float> parameters, std::span<float> optimizer_state,
             DeviceStream stream) override {
    floats += static_cast<int64_t>(parameters.size());
    HostParameterUpdate::Apply(step, gradient_sum, parameters, optimizer_state, stream);
  }
  int64_t floats = 0;
};

// The net of a worker in a device's memory.
class DeviceNet {
 public:
  DeviceNet(WorkerSession& session, const TrainingWork& work)
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
    replica.factor_update = &factor_update;
    replica.parameter_update = &parameter_update;
    replica.packer = &packer;
    for (const auto& layer : layers_) {
      replica.layers.push_back({{layer->values}, {layer->gradient}, layer->u, layer->v});
    }
    return replica;
  }

  // Puts the backward pass in the stream, after which nobody may read the parameters but who
  // updates them.
  void Backward(int l) {
    const bool dense = !session_.gradient(l).dense.empty();
    const bool updated =
        session_.exchange().product_update(l) || session_.exchange().dense_update(l);
    device_.Run(compute_, [this, l, dense, updated, rank = session_.rank(),
                           iteration = session_.iteration()] {
      Layer& layer = *layers_[l];
      const GradientBuffers buffers =
          dense ? GradientBuffers{layer.gradient, {}, {}} : GradientBuffers{{}, layer.u, layer.v};
      work_.arithmetic.gradient(rank, iteration, l, layer.values, buffers);
      if (updated) return;
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

  WorkerSession& session_;
  const TrainingWork& work_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::atomic<uint64_t> copies_ = 0;
  HostDevice device_;
  DeviceStream compute_;

 public:
  CountingUpdate factor_update{device_};
  CountingParameterUpdate parameter_update{device_};
  CountingPacker packer{device_};
};

Parameters TrainOnDevice(WorkerSession& session, const TrainingWork& work) {
  const int layers = work.model.layers_size();
  DeviceNet net(session, work);
  DeviceStaging staging(session.exchange(), {net.replica()});
  while (session.iteration() < work.iterations) {
    for (int layer = 0; layer < layers; ++layer) staging.WaitFresh(layer, net.streams());
    for (int layer = layers - 1; layer >= 0; --layer) {
      net.Backward(layer);
      staging.GradientReady(layer, net.streams());
    }
    staging.EndIteration();
    if (session.EndIteration({})) {
      staging.SyncToHost();
      session.ChangePlan();
      staging.PlanChanged();
    }
  }
  Parameters parameters;
  for (int layer = 0; layer < layers; ++layer) staging.WaitFresh(layer, net.streams());
  staging.Drain();
  for (int layer = 0; layer < layers; ++layer) parameters.push_back(net.values(layer));
  return parameters;
}

// Devices update what factors come to, and pack. Once, worker 0 reads the optimizer state, and all
// read their values from the host.
Parameters TrainWithUpdatesOnDevice(WorkerSessionOptions options, const TrainingWork& work,
                                    std::vector<float>& state) {
  HostDevice device({});
  options.allocate = PinnedFor(device);
  options.devices_update = true;
  options.devices_pack = true;
  WorkerSession session(options);
  session.Declare(work.model);
  const int layers = work.model.layers_size();
  const auto values = [&] {
    Parameters parameters;
    for (int layer = 0; layer < layers; ++layer) {
      const std::span<float> on_host = session.values(layer);
      parameters.emplace_back(on_host.begin(), on_host.end());
    }
    return parameters;
  };
  for (int layer = 0; session.rank() == 0 && layer < layers; ++layer) {
    work.arithmetic.initialize(layer, session.values(layer));
  }
  session.Begin();
  DeviceNet net(session, work);
  DeviceStaging staging(session.exchange(), {net.replica()});
  while (session.iteration() < work.iterations) {
    for (int layer = 0; layer < layers; ++layer) staging.WaitFresh(layer, net.streams());
    if (session.iteration() == work.iterations / 2) {
      staging.SyncToHost();
      if (session.rank() == 0) state = session.CollectOptimizerState();
      values();
    }
    for (int layer = layers - 1; layer >= 0; --layer) {
      net.Backward(layer);
      staging.GradientReady(layer, net.streams());
    }
    staging.EndIteration();
    if (session.EndIteration({})) {
      staging.SyncToHost();
      session.ChangePlan();
      staging.PlanChanged();
    }
  }
  for (int layer = 0; layer < layers; ++layer) staging.WaitFresh(layer, net.streams());
  staging.Drain();
  staging.SyncToHost();
  for (int layer = 0; layer < layers; ++layer) {
    EXPECT_EQ(values()[layer], net.values(layer)) << "layer " << layer;
  }
  int64_t updated = 0, floats = 0, packed = 0;  // layers of the last plan, or KV pairs
  for (int layer = 0; layer < layers; ++layer) {
    updated += session.exchange().product_update(layer) ? 1 : 0;
    if (session.exchange().dense_update(layer)) {
      floats += static_cast<int64_t>(net.values(layer).size());
    }
    packed += session.exchange().packed_gradient(layer).bytes.empty() ? 0 : 1;
  }
  packed += static_cast<int64_t>(session.exchange().packed_chunks().size());
  if (session.plan().number() == 0) {
    EXPECT_EQ(net.factor_update.calls, updated * work.iterations);
    EXPECT_EQ(net.parameter_update.floats, floats * work.iterations);
    EXPECT_EQ(net.packer.calls, packed * work.iterations);
    EXPECT_GT(updated + floats + packed, 0);
  }
  session.Finish({});
  return values();
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

// With momentum, so that the optimizer state counts.
SimulatedClusterOptions FactorTraining(int64_t iterations) {
  SimulatedClusterOptions options = MixedTraining(iterations, std::chrono::microseconds(50));
  options.job.mutable_communication()->set_policy(Communication::ALL_SFB);
  options.work.model.mutable_update_rule()->set_momentum(0.9F);
  options.work.model.mutable_update_rule()->set_weight_decay(0.01F);
  options.work.model.mutable_update_rule()->set_base_lr(0.01F);
  options.work.model.mutable_layers(2)->mutable_blobs(1)->set_lr_mult(2);
  return options;
}

Parameters TrainWithUpdatesOnDevices(const SimulatedClusterOptions& options,
                                     const wire::PlanAndModel* next, std::vector<float>& state) {
  return RunOverSockets(options.job, next, [&](const WorkerSessionOptions& session) {
    std::vector<float> of_others;
    return TrainWithUpdatesOnDevice(session, options.work,
                                    session.wanted_rank == 0 ? state : of_others);
  });
}

struct UpdatedPlan {
  Communication::Policy policy = Communication::ALL_SFB;
  WireCodec codec = FP32;
  int workers = 4;
};

class UpdatesOnDevices : public testing::TestWithParam<UpdatedPlan> {};

TEST_P(UpdatesOnDevices, ComeToTheBitsOfHosts) {
  SimulatedClusterOptions options = FactorTraining(10);
  options.job.mutable_cluster()->set_workers(GetParam().workers);
  Communication& communication = *options.job.mutable_communication();
  communication.set_policy(GetParam().policy);
  communication.set_codec(GetParam().codec);
  communication.set_update_at(Communication::WORKERS);
  communication.set_deterministic(true);
  communication.set_bucket_bytes(200);  // two of the layers
  std::vector<float> on_devices, on_hosts;
  const Parameters parameters = TrainWithUpdatesOnDevices(options, nullptr, on_devices);
  const Parameters expected =
      TrainOverSockets(options, nullptr, [&](WorkerSession& session, const TrainingWork& work) {
        TrainingWork half = work;
        half.iterations = work.iterations / 2;
        TrainOnHosts(session, half);
        if (session.rank() == 0) on_hosts = session.CollectOptimizerState();
        return TrainOnHosts(session, work);
      });
  EXPECT_EQ(parameters, expected);
  EXPECT_EQ(on_devices, on_hosts);
  EXPECT_NE(on_devices.back(), 0);
}

// Of one worker nothing leaves the device, unless it is rounded.
INSTANTIATE_TEST_SUITE_P(
    Plans, UpdatesOnDevices,
    testing::Values(UpdatedPlan{}, UpdatedPlan{.codec = FP16},
                    UpdatedPlan{.policy = Communication::ALL_RING},
                    UpdatedPlan{.policy = Communication::ALL_RING, .codec = BF16},
                    UpdatedPlan{.policy = Communication::ALL_HALVING_DOUBLING},
                    UpdatedPlan{.policy = Communication::ALL_TORUS},
                    UpdatedPlan{.policy = Communication::ALL_RING, .workers = 1},
                    UpdatedPlan{.policy = Communication::ALL_RING, .codec = FP16, .workers = 1},
                    UpdatedPlan{.policy = Communication::ALL_PS},
                    UpdatedPlan{.policy = Communication::ALL_PS, .codec = FP16},
                    UpdatedPlan{.policy = Communication::ALL_PS, .codec = ONE_BIT}));

// The state goes from the devices to the host, to the new plan's memory, and back.
TEST(DeviceTraining, UpdatesOnDevicesGoOverToAnotherPlan) {
  const SimulatedClusterOptions options = FactorTraining(100);
  Communication other = options.job.communication();
  other.set_kv_pair_bytes(28);
  wire::PlanAndModel next;
  *next.mutable_model() = options.work.model;
  *next.mutable_plan() = MakePlan(InformationBook(options.work.model, 4, 2), other);
  std::vector<float> state;
  EXPECT_EQ(TrainWithUpdatesOnDevices(options, &next, state), TrainOverSockets(options));
}

// What they may go back to is kept on the host, before each update that is made there.
TEST(DeviceTraining, JobsThatRecoverUpdateOnHosts) {
  for (const auto policy : {Communication::ALL_SFB, Communication::ALL_RING}) {
    SimulatedClusterOptions options = FactorTraining(3);
    options.job.mutable_communication()->set_policy(policy);
    const Parameters expected = TrainOverSockets(options);
    options.job.mutable_recovery()->set_mode(Recovery::REPLACE);
    EXPECT_EQ(RunOverSockets(options.job, nullptr,
                             [&](WorkerSessionOptions session_options) {
                               HostDevice device({});
                               session_options.allocate = PinnedFor(device);
                               session_options.devices_update = true;
                               session_options.goes_back = true;
                               WorkerSession session(session_options);
                               session.Declare(options.work.model);
                               for (int l = 0; l < options.work.model.layers_size(); ++l) {
                                 EXPECT_FALSE(session.exchange().product_update(l));
                                 EXPECT_FALSE(session.exchange().dense_update(l));
                                 if (session.rank() > 0) continue;
                                 options.work.arithmetic.initialize(l, session.values(l));
                               }
                               session.Begin();
                               Parameters parameters = TrainOnHosts(session, options.work);
                               session.Finish({});
                               return parameters;
                             }),
              expected);
  }
}

// What the servers or the hosts have updated until then the devices go on with.
void ExpectUpdatesGoOver(Communication::Policy from, Communication::Policy to) {
  SimulatedClusterOptions options = FactorTraining(100);
  options.job.mutable_communication()->set_policy(from);
  Communication other = options.job.communication();
  other.set_policy(to);
  wire::PlanAndModel next;
  *next.mutable_model() = options.work.model;
  *next.mutable_plan() = MakePlan(InformationBook(options.work.model, 4, 2), other);
  std::vector<float> state;
  EXPECT_LE(Difference(TrainWithUpdatesOnDevices(options, &next, state), TrainOverSockets(options)),
            RoundingBound(options.work, 4));
}

TEST(DeviceTraining, DevicesTakeOverUpdatesFromServers) {
  ExpectUpdatesGoOver(Communication::ALL_PS, Communication::ALL_SFB);
}

TEST(DeviceTraining, SlowServersTakeOverUpdatesFromDevices) {
  ExpectUpdatesGoOver(Communication::ALL_SFB, Communication::ALL_PS);
}

Parameters TrainPackingOnDevices(const SimulatedClusterOptions& options,
                                 const wire::PlanAndModel* next = nullptr) {
  std::vector<float> state;
  return TrainWithUpdatesOnDevices(options, next, state);
}

SimulatedClusterOptions PackedTraining(SimulatedClusterOptions options, WireCodec codec) {
  Communication& communication = *options.job.mutable_communication();
  communication.set_policy(Communication::ALL_PS);
  communication.set_codec(codec);
  communication.set_top_k_share(0.2);  // of KV pairs of a few floats
  communication.set_deterministic(true);
  return options;
}

class PackingOnDevices : public testing::TestWithParam<WireCodec> {};

// KV pairs of a layer's part, and of several layers.
TEST_P(PackingOnDevices, SlowComesToTheBitsOfHosts) {
  for (const auto& [update_at, bucket_bytes] :
       {std::pair(Communication::SERVERS, 100000), {Communication::WORKERS, 0}}) {
    SimulatedClusterOptions options = PackedTraining(FactorTraining(10), GetParam());
    options.job.mutable_communication()->set_update_at(update_at);
    options.job.mutable_communication()->set_bucket_bytes(bucket_bytes);
    EXPECT_EQ(TrainPackingOnDevices(options), TrainOverSockets(options)) << bucket_bytes;
  }
}

void ExpectTheBitsOfHosts(uint64_t seed, WireCodec codec) {
  SCOPED_TRACE(seed);
  const SimulatedClusterOptions options = PackedTraining(RandomTraining(seed), codec);
  EXPECT_EQ(TrainPackingOnDevices(options), TrainOverSockets(options));
}

TEST_P(PackingOnDevices, OfARandomTrainingComesToTheBitsOfHosts) {
  ExpectTheBitsOfHosts(0, GetParam());
}
TEST_P(PackingOnDevices, SlowOfRandomTrainingsComesToTheBitsOfHosts) {
  for (uint64_t seed = 1; seed < 5; ++seed) ExpectTheBitsOfHosts(seed, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Codecs, PackingOnDevices,
                         testing::Values(FP16, BF16, ONE_BIT, TOP_K, INT8));

// Under the same KV pairs in other lanes: whenever the job goes over, nothing that was not sent may
// get lost on its way from the device to the host, to the new plan's memory, and back.
void ExpectTheRestIsKept(WireCodec codec) {
  SimulatedClusterOptions options = PackedTraining(FactorTraining(100), codec);
  options.job.mutable_communication()->set_update_at(Communication::SERVERS);
  options.job.mutable_communication()->set_bucket_bytes(100000);
  Communication other = options.job.communication();
  other.set_lanes(1);
  wire::PlanAndModel next;
  *next.mutable_model() = options.work.model;
  *next.mutable_plan() = MakePlan(InformationBook(options.work.model, 4, 2), other);
  const Parameters expected = TrainOverSockets(options);
  EXPECT_EQ(TrainOverSockets(options, &next), expected) << WireCodec_Name(codec);
  EXPECT_EQ(TrainPackingOnDevices(options, &next), expected) << WireCodec_Name(codec);
}

TEST(DeviceTraining, WhatWasNotSentIsKeptWhenThePlanChanges) { ExpectTheRestIsKept(TOP_K); }

TEST(DeviceTraining, SlowWhatWasNotSentIsKeptWhenThePlanChanges) {
  ExpectTheRestIsKept(ONE_BIT);
  ExpectTheRestIsKept(INT8);
}

}  // namespace
}  // namespace poseidon
