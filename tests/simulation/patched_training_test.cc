// Solvers of their own made distributed over real sockets (caffe_adapter/patch): one whose blobs
// are in a device's memory, or whose gradients are in the session's, comes to the bits of one whose
// blobs are its own on the host.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>

#include "caffe_adapter/patch/distributed_solver.h"
#include "core/random.h"
#include "device/host_device.h"
#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "poseidon/caffe_worker.h"
#include "proto/model_size.h"
#include "tests/simulation/socket_training.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;

constexpr float kStep = 0.01F;

// Each call up to a third of a millisecond late, in no order.
class Delays {
 public:
  void Wait() {
    std::this_thread::sleep_for(std::chrono::microseconds(DeriveSeed(1, ++calls_) % 300));
  }

 private:
  std::atomic<uint64_t> calls_ = 0;
};

// Where gradients are, and who makes them of factors.
enum class Place { kHost, kSession, kDevice, kDeviceRebuilds };

// Does its work at once, or in a stream of a device.
class ToySolver : public PatchedSolver, private SolverOnDevice {
 public:
  // `device`: null on the host.
  ToySolver(const TrainingWork& work, int passes, HostDevice* device, Place place, int rank)
      : work_(work),
        passes_(passes),
        place_(place),
        rank_(rank),
        model_(work.model),
        device_(device) {
    if (device != nullptr) stream_ = device->MakeStream();
    if (place == Place::kDeviceRebuilds) factor_update_.emplace(*device);
    model_.set_iterations(work.iterations);
    for (int l = 0; l < model_.layers_size(); ++l) {
      const auto floats = static_cast<size_t>(FloatCount(model_.layers(l)));
      InnerProductSpec& product = *model_.mutable_layers(l)->mutable_inner_product();
      Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
      layer.values.assign(floats, 77.0F);  // what a worker other than 0 starts from must not matter
      layer.own_gradient.resize(floats);
      layer.gradient = layer.own_gradient;
      for (Floats& u : layer.u) u.resize(product.rows() * product.outputs());
      for (Floats& v : layer.v) v.resize(product.rows() * product.inputs());
      product.set_rows(product.rows() * passes);
      if (product.rows() == 0) model_.mutable_layers(l)->clear_inner_product();
      if (rank == 0) work.arithmetic.initialize(l, layer.values);
    }
  }
  ~ToySolver() override { Finish(); }

  const ModelSpec& model() const override { return model_; }
  int passes() const override { return passes_; }
  void GetValues(int layer, std::span<float> values) override {
    Finish();
    std::ranges::copy(layers_[layer]->values, values.begin());
  }
  void SetValues(int layer, std::span<const float> values) override {
    Finish();
    std::ranges::copy(values, layers_[layer]->values.begin());
  }
  void PlaceGradient(int layer, std::span<float> memory) override {
    ASSERT_EQ(device_, nullptr);
    if (place_ == Place::kSession) layers_[layer]->gradient = memory;
  }
  void NeedGradient(int layer, bool needed) override { layers_[layer]->needed = needed; }
  void GetGradient(int layer, std::span<float> gradient) override {
    ASSERT_EQ(device_, nullptr);
    CopyGradient(layers_[layer]->gradient, gradient);
  }
  void SetGradient(int layer, std::span<const float> gradient) override {
    ASSERT_EQ(device_, nullptr);
    CopyGradient(gradient, layers_[layer]->gradient);
  }
  void GetFactors(int layer, std::span<float> u, std::span<float> v) override {
    ASSERT_EQ(device_, nullptr);
    std::ranges::copy(layers_[layer]->u[turn_], u.begin());
    std::ranges::copy(layers_[layer]->v[turn_], v.begin());
  }
  SolverOnDevice* on_device() override { return device_ == nullptr ? nullptr : this; }

  void Train(DistributedSolver& distributed) {
    const int layers = model_.layers_size();
    for (int64_t iteration = 0; iteration < model_.iterations(); ++iteration) {
      // As Caffe does, before it says that an iteration starts.
      for (const auto& layer : layers_) {
        Do([&layer] { std::ranges::fill(layer->gradient, 0.0F); });
      }
      distributed.OnStart();
      for (int pass = 0; pass < passes_; ++pass) {
        for (int l = 0; l < layers; ++l) distributed.BeforeForward(l);
        turn_ = 1 - turn_;
        for (int l = layers - 1; l >= 0; --l) {
          Do([=, this, turn = turn_, needed = layers_[l]->needed] {
            Backward(l, iteration * passes_ + pass, turn, needed);
          });
          distributed.AfterBackward(l);
        }
      }
      distributed.OnGradientsReady([this] {
        Finish();
        return 1.0F;
      });
      for (const auto& layer : layers_) Do([&layer] { Update(*layer); });
    }
  }

  // How often a layer's gradient has been copied.
  int64_t copies() const { return copies_; }

  Parameters Values() {
    Finish();
    Parameters values;
    for (const auto& layer : layers_) values.push_back(layer->values);
    return values;
  }

 private:
  struct Layer {
    Floats values;
    Floats own_gradient;
    std::span<float> gradient;  // the above, or memory of the session
    bool needed = true;
    // Of a pass, by turns in one of the two.
    std::array<Floats, 2> u;
    std::array<Floats, 2> v;
  };

  Device& device() override { return *device_; }
  FactorUpdate* factor_update() override { return factor_update_ ? &*factor_update_ : nullptr; }
  DeviceStream stream() const override { return stream_; }
  std::vector<std::span<float>> GradientOnDevice(int layer) override {
    // Of two blobs, as the model has them or not.
    const std::span<float> whole = layers_[layer]->gradient;
    return {whole.first(whole.size() / 3), whole.subspan(whole.size() / 3)};
  }
  Factors FactorsOnDevice(int layer) override {
    return {.u = layers_[layer]->u[turn_], .v = layers_[layer]->v[turn_]};
  }

  void Do(std::function<void()> work) {
    if (device_ == nullptr) return work();
    device_->Run(stream_, std::move(work));
  }
  void Finish() {
    if (device_ != nullptr) device_->Synchronize(stream_);
  }

  void CopyGradient(std::span<const float> from, std::span<float> to) {
    if (from.data() == to.data()) return;
    std::ranges::copy(from, to.begin());
    ++copies_;
  }

  // Adds to the gradient, and leaves the factors of this pass, but none of the pass before.
  void Backward(int l, int64_t pass, int turn, bool needed) {
    Layer& layer = *layers_[l];
    constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
    Floats gradient(layer.values.size(), kNothing);
    if (needed) work_.arithmetic.gradient(rank_, pass, l, layer.values, {gradient, {}, {}});
    for (size_t i = 0; i < gradient.size(); ++i) layer.gradient[i] += gradient[i];
    if (layer.u[0].empty()) return;
    work_.arithmetic.gradient(rank_, pass, l, layer.values, {{}, layer.u[turn], layer.v[turn]});
    std::ranges::fill(layer.u[1 - turn], kNothing);
    std::ranges::fill(layer.v[1 - turn], kNothing);
  }
  // Caffe, too, makes the step in the gradient's place.
  static void Update(Layer& layer) {
    for (size_t i = 0; i < layer.values.size(); ++i) {
      layer.gradient[i] *= kStep;
      layer.values[i] -= layer.gradient[i];
    }
  }

  const TrainingWork& work_;
  int passes_;
  Place place_;
  int rank_;
  ModelSpec model_;
  std::vector<std::unique_ptr<Layer>> layers_;
  int turn_ = 0;
  int64_t copies_ = 0;
  HostDevice* device_;
  std::optional<HostFactorUpdate> factor_update_;
  DeviceStream stream_ = nullptr;
};

// What the copies were of an iteration, by layer: both ways.
void ExpectCopies(const Trace& trace, const std::string& layer, int64_t iteration) {
  const auto times = [&](const std::string& name, int64_t of) {
    return std::ranges::count_if(trace.events(), [&](const Trace::Event& event) {
      return event.name == name && event.layer == layer && event.iteration == of &&
             event.end > event.begin;
    });
  };
  EXPECT_EQ(times("copy to host", iteration), 1) << layer << ", iteration " << iteration;
  EXPECT_EQ(times("copy to device", iteration + 1), 1) << layer << ", iteration " << iteration;
}

Parameters Train(const SimulatedClusterOptions& options, int passes, Place place,
                 const wire::PlanAndModel* next = nullptr, std::optional<int64_t> copies = {}) {
  const TrainingWork& work = options.work;
  const bool on_device = place == Place::kDevice || place == Place::kDeviceRebuilds;
  return RunOverSockets(options.job, next, [&](WorkerSessionOptions session_options) {
    Delays delays;
    std::unique_ptr<HostDevice> device;
    if (on_device) {
      device = std::make_unique<HostDevice>(HostDevice::Options{
          .name = "host device", .before_copy = [&](auto, auto) { delays.Wait(); }});
    }
    if (device != nullptr) session_options.allocate = PinnedFor(*device);
    session_options.devices_update = place == Place::kDeviceRebuilds;
    session_options.job.mutable_training()->set_trace(true);
    WorkerSession session(session_options);
    ToySolver solver(work, passes, device.get(), place, session.rank());
    DistributedSolver distributed(solver, session);
    solver.Train(distributed);
    distributed.Finish();
    for (const LayerSpec& layer : work.model.layers()) {
      for (int64_t i = 0; on_device && next == nullptr && i < work.iterations; ++i) {
        ExpectCopies(*session.trace(), layer.name(), i);
      }
    }
    if (copies) {
      EXPECT_EQ(solver.copies(), *copies);
    }
    return solver.Values();
  });
}

struct Case {
  Communication::Policy policy;
  int passes;
};

class PatchedTraining : public testing::TestWithParam<Case> {};

TEST_P(PatchedTraining, ComesToTheSameBitsWhereverGradientsAre) {
  const auto [policy, passes] = GetParam();
  SimulatedClusterOptions options = MixedTraining(8, std::chrono::microseconds(50));
  options.job.mutable_communication()->set_policy(policy);
  const Parameters on_host = Train(options, passes, Place::kHost);
  EXPECT_NE(on_host[0][0], 77.0F);
  EXPECT_EQ(Train(options, passes, Place::kSession), on_host);
  EXPECT_EQ(Train(options, passes, Place::kDevice), on_host);
  EXPECT_EQ(Train(options, passes, Place::kDeviceRebuilds), on_host);
}

INSTANTIATE_TEST_SUITE_P(Policies, PatchedTraining,
                         testing::Values(Case{Communication::ALL_PS, 1},
                                         Case{Communication::ALL_PS, 3},
                                         Case{Communication::ALL_SFB, 1},
                                         Case{Communication::ALL_SFB, 3},
                                         Case{Communication::ALL_RING, 1}));

// Only an all-reduce among several workers needs a gradient twice.
TEST(PatchedTraining, CopiesNoGradientThatIsInTheSession) {
  constexpr int64_t kIterations = 5;
  SimulatedClusterOptions options = MixedTraining(kIterations, std::chrono::microseconds(50));
  const int64_t layers = options.work.model.layers_size();
  const auto train = [&](Communication::Policy policy, int workers, int64_t copies) {
    options.job.mutable_communication()->set_policy(policy);
    options.job.mutable_cluster()->set_workers(workers);
    const Parameters expected = Train(options, 1, Place::kHost);
    EXPECT_EQ(Train(options, 1, Place::kSession, nullptr, copies), expected)
        << Communication::Policy_Name(policy) << ", " << workers << " workers";
  };
  train(Communication::ALL_PS, 4, 0);
  train(Communication::ALL_SFB, 4, 0);
  train(Communication::ALL_RING, 4, layers * kIterations);
  train(Communication::ALL_RING, 1, 0);
  train(Communication::ALL_SFB, 1, 0);
}

// What `call` throws.
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

// And has no other effect: the training goes on.
TEST(PatchedTraining, ACallOutOfOrderIsRefused) {
  constexpr int kPasses = 2;
  SimulatedClusterOptions options = MixedTraining(1, std::chrono::microseconds(50));
  RunOverSockets(options.job, nullptr, [&](const WorkerSessionOptions& session_options) {
    WorkerSession session(session_options);
    ToySolver solver(options.work, kPasses, nullptr, Place::kHost, session.rank());
    DistributedSolver distributed(solver, session);
    const auto pass = [&](auto&& call) {
      for (int layer = 0; layer < solver.model().layers_size(); ++layer) call(layer);
    };
    const auto expect_refused = [&](const std::function<void()>& call, const std::string& what) {
      EXPECT_EQ(ErrorOf(call), "the solver's calls are out of order: in iteration 0 " + what);
    };
    distributed.OnStart();
    expect_refused([&] { distributed.AfterBackward(1); },
                   "AfterBackward was called for layer \"scale\" before its BeforeForward");
    distributed.OnStart();
    pass([&](int layer) { distributed.BeforeForward(layer); });
    pass([&](int layer) { distributed.AfterBackward(layer); });
    distributed.AfterBackward(0);
    expect_refused([&] { distributed.AfterBackward(0); },
                   "AfterBackward was called for layer \"conv\" after all of its passes, of which "
                   "the solver makes 2 in an iteration");
    expect_refused(
        [&] { distributed.OnGradientsReady(1); },
        "OnGradientsReady was called for layer \"scale\" after 1 of its 2 AfterBackward");
    expect_refused([&] { distributed.OnStart(); },
                   "OnStart was called for layer \"conv\" after its last AfterBackward; "
                   "OnGradientsReady comes first");
    distributed.AfterBackward(1);
    distributed.AfterBackward(2);
    distributed.OnGradientsReady(1);
    distributed.Finish();
    return Parameters();
  });
}

// A program's solver, of nothing.
struct Nothing : CaffeWorker::Solver {
  Model model() const override { return {.layers = {{.name = "one", .blobs = {{.shape = {1}}}}}}; }
  void GetValues(int, std::span<float>) override {}
  void SetValues(int, std::span<const float>) override {}
  void GetGradient(int, std::span<float>) override {}
  void SetGradient(int, std::span<const float>) override {}
};

// Before it looks for a scheduler, which is not there.
TEST(PatchedTraining, ACaffeWorkerIsNotForAJobWithLocalSteps) {
  Nothing solver;
  const std::string job =
      "cluster { workers: 2 servers: 1 scheduler_host: '127.0.0.1' scheduler_port: 1 "
      "join_deadline_seconds: 0.1 } communication { policy: ALL_PS local_steps: 4 }";
  EXPECT_THAT(ErrorOf([&] { CaffeWorker({.job_text = job}, solver); }),
              testing::StartsWith("communication.local_steps: this program exchanges gradients in "
                                  "every step"));
}

struct UnequalPasses : Nothing {
  Model model() const override {
    return {.layers = {{.name = "fc",
                        .blobs = {{.shape = {2, 3}}},
                        .inner_product = {{.outputs = 2, .inputs = 3, .rows = 5}}}}};
  }
  int passes() const override { return 2; }
};

// Before it looks for a scheduler, too.
TEST(PatchedTraining, ACaffeWorkersPassesHaveEquallyManyRows) {
  UnequalPasses solver;
  const std::string job =
      "cluster { workers: 2 servers: 1 scheduler_host: '127.0.0.1' scheduler_port: 1 "
      "join_deadline_seconds: 0.1 }";
  EXPECT_EQ(ErrorOf([&] { CaffeWorker({.job_text = job}, solver); }),
            "the inner product of layer \"fc\" has 5 rows, but the solver makes 2 passes in an "
            "iteration; `rows` counts those of all passes, which have equally many. Leave "
            "inner_product out where they have not");
}

// As from a snapshot of the last iteration.
TEST(PatchedTraining, WhereNoIterationIsLeftThereIsNothingToFinish) {
  SimulatedClusterOptions options = MixedTraining(0, std::chrono::microseconds(50));
  options.job.mutable_cluster()->set_workers(1);
  RunOverSockets(options.job, nullptr, [&](const WorkerSessionOptions& session_options) {
    WorkerSession session(session_options);
    ToySolver solver(options.work, 1, nullptr, Place::kHost, session.rank());
    DistributedSolver distributed(solver, session);
    solver.Train(distributed);
    try {
      distributed.Finish();
      ADD_FAILURE() << "finished";
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("nothing is left to do"));
      session.Fail(error);
    }
    return Parameters();
  });
}

void ExpectItGoesOver(Communication::Policy policy) {
  SimulatedClusterOptions options = MixedTraining(100, std::chrono::microseconds(50));
  options.job.mutable_communication()->set_policy(policy);
  Communication other = options.job.communication();
  other.set_kv_pair_bytes(28);
  other.set_update_at(Communication::WORKERS);
  wire::PlanAndModel next;
  *next.mutable_model() = options.work.model;
  next.mutable_model()->mutable_update_rule()->Clear();
  next.mutable_model()->mutable_update_rule()->set_type("MeanGradient");
  next.mutable_model()->set_iterations(options.work.iterations);
  *next.mutable_plan() = MakePlan(InformationBook(next.model(), 4, 2), other);
  const Parameters expected = Train(options, 1, Place::kHost);
  for (const Place place : {Place::kHost, Place::kSession, Place::kDeviceRebuilds}) {
    EXPECT_EQ(Train(options, 1, place, &next), expected);
  }
}

TEST(PatchedTraining, GoesOverToAnotherPlan) { ExpectItGoesOver(Communication::ALL_SFB); }

TEST(PatchedTraining, SlowGoesOverToAnotherPlan) { ExpectItGoesOver(Communication::ALL_PS); }

}  // namespace
}  // namespace poseidon
