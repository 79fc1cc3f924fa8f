// A training by the worker's own loop over real sockets, whose engines are stand-ins for nets: on
// hosts, or on host devices.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/simulation/socket_training.h"
#include "worker/trainer.h"
#include "worker/worker_devices.h"

namespace poseidon {

struct TestCase {
  SimulatedClusterOptions cluster;  // its model is that of a device and of one pass
  int devices = 1;                  // of a worker
  bool staged = true;               // their memory is their own
  bool like_a_gpu = false;          // devices update, pack, and have threads that launch
  bool ends_at_once = false;        // a training that fails ends the process, as a daemon's does
  HostDevice::Options device{.name = "host device"};
  TrainerOptions trainer;
};

// A stand-in for a net: a step without parameters, then one for each layer. Its gradients depend on
// the parameters that it finds.
class ArithmeticEngine : public Engine {
 public:
  // `share` of the worker's loss is this replica's.
  ArithmeticEngine(const TrainingWork& work, int rank, float share, bool poisons)
      : work_(work), rank_(rank), share_(share), poisons_(poisons) {
    names_.emplace_back("data");
    for (const LayerSpec& layer : work.model.layers()) names_.push_back(layer.name());
    values_.resize(work.model.layers_size());
  }

  const ModelSpec& model() const override { return work_.model; }
  int64_t batch() const override { return work_.model.batch(); }
  int steps() const override { return static_cast<int>(names_.size()); }
  const std::string& step_name(int step) const override { return names_[step]; }
  std::optional<int> layer_of_step(int step) const override {
    return step == 0 ? std::nullopt : std::optional(step - 1);
  }
  void BindParameters(int layer, std::span<float> values) override { values_[layer] = values; }
  void FillParameters() override {
    for (size_t layer = 0; layer < values_.size(); ++layer) {
      work_.arithmetic.initialize(static_cast<int>(layer), values_[layer]);
    }
  }
  // As a GPU's engine may: what lies between pauses is done with its last step.
  void SetPauses(const std::optional<std::set<int>>& steps) override {
    EXPECT_TRUE(waiting_.empty());
    pauses_ = steps;
  }
  void ReleaseMemory() override {
    if (at_release) at_release();
  }
  void LoadBatch(int64_t iteration) override {
    waiting_.clear();  // of a pass that was given up
    if (iteration == fails_at) throw DataError("record 17 is lost");
    pass_ = iteration;
    loss_ = 0;
  }
  std::vector<std::span<float>> Statistics() const override {
    return {std::span(statistics_).first(1), std::span(statistics_).last(1)};
  }
  void Forward(int step) override {
    Do([=, this] { ComputeForward(step); }, step + 1 == steps() || IsPause(step + 1));
  }
  void Backward(int step, const GradientBuffers& target) override {
    Do([=, this] { ComputeBackward(step, target); }, step == 0 || IsPause(step));
  }
  float loss() const override {
    return pass_ == diverges_at ? std::numeric_limits<float>::infinity() : share_ * loss_;
  }
  std::string FirstNotFinite() const override {
    return pass_ == diverges_at ? "\"fc\", in its result" : "";
  }
  TestResult Test() override {
    if (at_test) at_test();
    return {};
  }
  void ReadTestLayers(const std::string& caffemodel) override {
    if (at_test_layers) at_test_layers(caffemodel);
  }

  std::span<const float> values(int layer) const { return values_[layer]; }
  // What a pass makes of what the net has beside the model.
  static std::array<float, 2> StatisticsAfter(const std::array<float, 2>& before, int64_t pass) {
    return {0.5F * before[0] + static_cast<float>(pass), before[1] + 1};
  }
  const std::array<float, 2>& statistics() const { return statistics_; }

  int rank() const { return rank_; }

  // Called with each file that its test nets are to have values of.
  std::function<void(const std::string& caffemodel)> at_test_layers;
  // Called by who computes a step, before it; may throw.
  std::function<void(int64_t pass, int step, bool backward)> at_step;
  // Called for each test phase.
  std::function<void()> at_test;
  // Called when it is to give memory back.
  std::function<void()> at_release;
  int64_t fails_at = -1;
  int64_t diverges_at = -1;
  std::chrono::milliseconds loss_takes{0};
  std::shared_future<void> goes_backward_after;
  // In the iteration's backward pass a kernel of the device fails.
  int64_t device_fails_at = -1;
  HostDevice* device = nullptr;

 private:
  bool IsPause(int step) const { return !pauses_ || pauses_->contains(step); }
  void Do(std::function<void()> work, bool last) {
    waiting_.push_back(std::move(work));
    if (!last) return;
    for (const std::function<void()>& each : std::exchange(waiting_, {})) each();
  }

  void ComputeForward(int step) {
    if (at_step) at_step(pass_, step, /*backward=*/false);
    if (step == 0) statistics_ = StatisticsAfter(statistics_, pass_);
    if (step > 0 && !values_[step - 1].empty()) loss_ += std::abs(values_[step - 1][0]);
  }
  void ComputeBackward(int step, const GradientBuffers& target) {
    if (at_step) at_step(pass_, step, /*backward=*/true);
    if (step + 1 == steps()) std::this_thread::sleep_for(loss_takes);
    if (pass_ == device_fails_at && step + 1 == steps()) {
      FailDevice();
    }
    if (goes_backward_after.valid()) {
      EXPECT_EQ(goes_backward_after.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    }
    if (step == 0) return;
    const std::span<float> values = values_[step - 1];
    work_.arithmetic.gradient(rank_, pass_, step - 1, values, {target.dense, target.u, target.v});
    // A GPU's engine would be asked too late.
    EXPECT_NE(pass_, diverges_at) << "gradients of a loss that is no number are made";
    for (float& value : target.dense) value *= share_;
    for (float& value : target.u) value *= share_;
    if (poisons_) {
      std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
    }
  }
  // In a stream of its own, as this may be called in the one of the passes, behind whose next tasks
  // the kernel would be put. A failed device does nothing in any stream.
  void FailDevice() {
    const DeviceStream other = device->MakeStream();
    device->Run(other, [] { throw std::runtime_error("trap"); });
    const std::unique_ptr<DeviceEvent> failed = device->MakeEvent();
    device->Record(*failed, other);
    EXPECT_THROW(device->Await(*failed), Error);
  }

  const TrainingWork& work_;
  int rank_;
  float share_;
  bool poisons_;  // memory that others fill for the next iteration
  std::vector<std::string> names_;
  std::vector<std::span<float>> values_;
  int64_t pass_ = 0;
  float loss_ = 0;
  mutable std::array<float, 2> statistics_{};  // others are told where they are
  std::optional<std::set<int>> pauses_;
  std::vector<std::function<void()>> waiting_;  // for the last step before a pause
};

inline ModelSpec DeclaredModel(const TestCase& test) {
  ModelSpec model = test.cluster.work.model;
  const auto times = static_cast<int64_t>(test.devices) * test.trainer.passes.most();
  model.set_batch(model.batch() * times);
  for (LayerSpec& layer : *model.mutable_layers()) {
    if (!layer.has_inner_product()) continue;
    layer.mutable_inner_product()->set_rows(layer.inner_product().rows() * times);
  }
  return model;
}

inline JobConfig ConfigOf(const TestCase& test) {
  JobConfig config;
  config.job = test.cluster.job;
  config.job.mutable_cluster()->set_devices_per_worker(test.devices);
  return config;
}

inline WorkerDevices DevicesOf(const TestCase& test) {
  if (!test.staged) return {};
  if (test.devices > 1 && !test.like_a_gpu) return MakeHostDevices(test.devices);
  WorkerDevices devices;
  std::vector<HostDevice*> hosts;
  for (int i = 0; i < test.devices; ++i) {
    auto device = std::make_unique<HostComputeDevice>(test.device, test.like_a_gpu);
    hosts.push_back(&device->device());
    devices.devices.push_back(std::move(device));
  }
  if (test.devices > 1) devices.reduction = std::make_unique<HostLocalReduction>(hosts);
  return devices;
}

// Whether all values come from the host for each pass.
inline bool Poisons(const TestCase& test) {
  return test.staged && !test.like_a_gpu && test.trainer.passes.most() == 1;
}

using Prepare = std::function<void(int replica, ArithmeticEngine& engine)>;

inline Parameters TrainWorker(const TestCase& test, WorkerSessionOptions options,
                              const Prepare& prepare) {
  const WorkerDevices devices = DevicesOf(test);
  devices.Describe(options);
  WorkerSession session(options);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int replica = 0; replica < test.devices; ++replica) {
    auto engine = std::make_unique<ArithmeticEngine>(
        test.cluster.work, session.rank() * test.devices + replica,
        1.0F / static_cast<float>(test.devices), Poisons(test));
    if (test.staged) {
      ComputeDevice& computes = *devices.devices[static_cast<size_t>(replica)];
      engine->device = &dynamic_cast<HostDevice&>(computes.device());
    }
    if (prepare) prepare(replica, *engine);
    engines.push_back(std::move(engine));
  }
  const ModelSpec model = DeclaredModel(test);
  session.Declare(model);
  std::unique_ptr<WorkerNet> net;
  wire::WorkerReport report;
  try {
    net = MakeWorkerNet(engines, devices, session, model, test.trainer);
    report = Trainer(*net, session, model, test.trainer).Train();
  } catch (const Error& error) {
    if (test.ends_at_once) FailTraining("the worker", devices, session, error);
    session.Fail(error);
    throw;
  }
  const int64_t passes = test.trainer.passes.PassesBefore(test.trainer.max_iter);
  const int64_t images = model.batch() / test.trainer.passes.most() * passes;
  // Who has taken a lost worker's place has not seen them all.
  if (options.replaces == 0) {
    EXPECT_EQ(report.images(), images);
  }
  net->Synchronize();
  std::array<float, 2> statistics{};
  for (int64_t pass = 0; pass < passes; ++pass) {
    statistics = ArithmeticEngine::StatisticsAfter(statistics, pass);
  }
  EXPECT_EQ(static_cast<ArithmeticEngine&>(net->engine()).statistics(), statistics);
  Parameters parameters;
  for (int layer = 0; layer < model.layers_size(); ++layer) {
    const std::span<const float> values = session.values(layer);
    parameters.emplace_back(values.begin(), values.end());
    for (const auto& engine : engines) {
      const auto replica = static_cast<ArithmeticEngine&>(*engine).values(layer);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), replica.begin(), replica.end()))
          << "layer " << layer;
    }
  }
  return parameters;
}

inline Parameters Train(const TestCase& test, const wire::PlanAndModel* next = nullptr) {
  return RunOverSockets(test.cluster.job, next, [&](const WorkerSessionOptions& options) {
    return TrainWorker(test, options, nullptr);
  });
}

}  // namespace poseidon
