// The training loop over real sockets: nets on devices, one or several replicas in a worker, come
// to what engines on the hosts come to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <future>
#include <limits>
#include <random>
#include <thread>

#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "tests/simulation/socket_training.h"
#include "worker/host_net.h"
#include "worker/trainer.h"
#include "worker/worker_devices.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

struct TestCase {
  SimulatedClusterOptions cluster;  // its model is that of a device and of one pass
  int devices = 1;                  // of a worker
  bool staged = true;               // their memory is their own
  bool like_a_gpu = false;          // devices update from factors and pack gradients
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
  void LoadBatch(int64_t iteration) override {
    if (iteration == fails_at) throw DataError("record 17 is lost");
    pass_ = iteration;
    loss_ = 0;
  }
  void Forward(int step) override {
    if (step > 0 && !values_[step - 1].empty()) loss_ += std::abs(values_[step - 1][0]);
  }
  void Backward(int step, const GradientBuffers& target) override {
    if (step + 1 == steps()) std::this_thread::sleep_for(loss_takes);
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
  float loss() const override {
    return pass_ == diverges_at ? std::numeric_limits<float>::infinity() : share_ * loss_;
  }
  std::string FirstNotFinite() const override {
    return pass_ == diverges_at ? "\"fc\", in its result" : "";
  }
  TestResult Test() override { return {}; }

  std::span<const float> values(int layer) const { return values_[layer]; }

  int rank() const { return rank_; }

  int64_t fails_at = -1;
  int64_t diverges_at = -1;
  std::chrono::milliseconds loss_takes{0};
  std::shared_future<void> goes_backward_after;

 private:
  const TrainingWork& work_;
  int rank_;
  float share_;
  bool poisons_;  // memory that others fill for the next iteration
  std::vector<std::string> names_;
  std::vector<std::span<float>> values_;
  int64_t pass_ = 0;
  float loss_ = 0;
};

ModelSpec DeclaredModel(const TestCase& test) {
  ModelSpec model = test.cluster.work.model;
  const auto times = static_cast<int64_t>(test.devices) * test.trainer.passes.most();
  model.set_batch(model.batch() * times);
  for (LayerSpec& layer : *model.mutable_layers()) {
    if (!layer.has_inner_product()) continue;
    layer.mutable_inner_product()->set_rows(layer.inner_product().rows() * times);
  }
  return model;
}

JobConfig ConfigOf(const TestCase& test) {
  JobConfig config;
  config.job = test.cluster.job;
  config.job.mutable_cluster()->set_devices_per_worker(test.devices);
  return config;
}

WorkerDevices DevicesOf(const TestCase& test) {
  if (!test.staged) return {};
  if (test.devices > 1 && !test.like_a_gpu) return MakeWorkerDevices(ConfigOf(test), 0);
  WorkerDevices devices;
  std::vector<HostDevice*> hosts;
  for (int i = 0; i < test.devices; ++i) {
    auto device = std::make_unique<HostComputeDevice>("host device", test.like_a_gpu);
    hosts.push_back(&device->device());
    devices.devices.push_back(std::move(device));
  }
  if (test.devices > 1) devices.reduction = std::make_unique<HostLocalReduction>(hosts);
  return devices;
}

// Whether all values come from the host for each pass.
bool Poisons(const TestCase& test) {
  return test.staged && !test.like_a_gpu && test.trainer.passes.most() == 1;
}

using Prepare = std::function<void(int replica, ArithmeticEngine& engine)>;

Parameters TrainWorker(const TestCase& test, WorkerSessionOptions options, const Prepare& prepare) {
  const WorkerDevices devices = DevicesOf(test);
  devices.Describe(options);
  WorkerSession session(options);
  std::vector<std::unique_ptr<Engine>> engines;
  for (int replica = 0; replica < test.devices; ++replica) {
    auto engine = std::make_unique<ArithmeticEngine>(
        test.cluster.work, session.rank() * test.devices + replica,
        1.0F / static_cast<float>(test.devices), Poisons(test));
    if (prepare) prepare(replica, *engine);
    engines.push_back(std::move(engine));
  }
  const ModelSpec model = DeclaredModel(test);
  session.Declare(model);
  const std::unique_ptr<WorkerNet> net =
      MakeWorkerNet(engines, devices, session, model, test.trainer);
  Trainer trainer(*net, session, model, test.trainer);
  wire::WorkerReport report;
  try {
    report = trainer.Train();
  } catch (const Error& error) {
    session.Fail(error);
    throw;
  }
  EXPECT_EQ(report.images(), model.batch() / test.trainer.passes.most() *
                                 test.trainer.passes.PassesBefore(test.trainer.max_iter));
  net->Synchronize();
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

Parameters Train(const TestCase& test, const wire::PlanAndModel* next = nullptr) {
  return RunOverSockets(test.cluster.job, next, [&](const WorkerSessionOptions& options) {
    return TrainWorker(test, options, nullptr);
  });
}

// Each device a worker of its own, whose engine computes on the host.
TestCase OnHosts(TestCase test) {
  Cluster& cluster = *test.cluster.job.mutable_cluster();
  cluster.set_workers(cluster.workers() * test.devices);
  test.devices = 1;
  test.staged = false;
  return test;
}

// By how much devices may differ from as many workers on hosts, whose sums are taken in another
// order.
double RoundingBound(const TestCase& test) {
  TrainingWork work = test.cluster.work;
  work.model.mutable_update_rule()->set_deferred(false);
  return RoundingBound(
      work, test.cluster.job.cluster().workers() * test.devices * test.trainer.passes.most());
}

TestCase MakeCase(const SimulatedClusterOptions& options, int devices, const PassSchedule& passes) {
  TestCase test;
  test.cluster = options;
  test.devices = devices;
  test.cluster.job.mutable_communication()->set_deterministic(true);
  test.trainer.max_iter = options.work.iterations;
  test.trainer.passes = passes;
  return test;
}

PassSchedule RandomPasses(std::mt19937& random) {
  std::vector<PassSchedule::Growth> growth;
  if (random() % 2 == 0) growth = {{1, 3}, {3, 2}};
  return PassSchedule(1 + static_cast<int>(random() % 2), growth);
}

TEST(WorkerNetTest, OneDeviceComesToTheBitsOfTheHost) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const TestCase test = MakeCase(RandomTraining(seed), 1, RandomPasses(random));
    EXPECT_EQ(Train(test), Train(OnHosts(test)));
  }
}

TEST(WorkerNetTest, ReplicasAreSoManyWorkers) {
  for (uint64_t seed = 20; seed < 28; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    options.job.mutable_cluster()->set_workers(1 + static_cast<int>(random() % 3));
    TestCase test = MakeCase(options, 2 + static_cast<int>(random() % 3),
                             random() % 2 == 0 ? PassSchedule() : RandomPasses(random));
    test.like_a_gpu = seed % 3 == 0;
    EXPECT_LE(Difference(Train(test), Train(OnHosts(test))), RoundingBound(test));
  }
}

TestCase MixedCase(int64_t iterations, int devices) {
  SimulatedClusterOptions options = MixedTraining(iterations, {});
  options.job.mutable_cluster()->set_workers(2);
  return MakeCase(options, devices, PassSchedule());
}

// Of fewer passes than the iteration before, whose factors are still there.
TEST(WorkerNetTest, PassesComeAndGo) {
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_SFB}) {
    TestCase test = MixedCase(8, 2);
    test.cluster.job.mutable_communication()->set_policy(policy);
    test.trainer.passes = PassSchedule(1, {{2, 3}, {5, 1}});
    EXPECT_LE(Difference(Train(test), Train(OnHosts(test))), RoundingBound(test));
  }
}

TEST(WorkerNetTest, DevicesUpdateFromFactorsAndPack) {
  for (const auto& [policy, codec] :
       {std::pair(Communication::ALL_SFB, FP32), {Communication::ALL_PS, FP16}}) {
    for (const int devices : {1, 3}) {
      SCOPED_TRACE(codec);
      SCOPED_TRACE(devices);
      TestCase test = MixedCase(10, devices);
      test.cluster.job.mutable_communication()->set_policy(policy);
      test.cluster.job.mutable_communication()->set_codec(codec);
      test.cluster.work.model.mutable_update_rule()->set_momentum(0.9F);
      test.like_a_gpu = true;
      // A sum of replicas is packed once, those of workers each by itself: to ten bits and a sign.
      const double tolerance = codec == FP16 ? 1e-2 : RoundingBound(test);
      EXPECT_LE(Difference(Train(test), Train(OnHosts(test))), devices == 1 ? 0 : tolerance);
    }
  }
}

// Of one replica or several, whose sum is packed once; and so under another plan with the same KV
// pairs.
TEST(WorkerNetTest, DevicesPackAsHostsDo) {
  for (const WireCodec codec : {FP16, ONE_BIT, TOP_K, INT8}) {
    for (const int devices : {1, 3}) {
      SCOPED_TRACE(WireCodec_Name(codec));
      SCOPED_TRACE(devices);
      TestCase test = MixedCase(100, devices);
      Communication& communication = *test.cluster.job.mutable_communication();
      communication.set_policy(Communication::ALL_PS);
      communication.set_codec(codec);
      communication.set_update_at(Communication::SERVERS);
      test.cluster.work.model.mutable_update_rule()->set_base_lr(0.001F);
      const Parameters expected = Train(test);
      test.like_a_gpu = true;
      Communication other = communication;
      other.set_lanes(1);
      wire::PlanAndModel next;
      *next.mutable_model() = DeclaredModel(test);
      *next.mutable_plan() = MakePlan(InformationBook(next.model(), 2, 2), other);
      EXPECT_EQ(Train(test, &next), expected);
    }
  }
}

// Values change on the hosts before they go to the devices.
TEST(WorkerNetTest, DeferredUpdates) {
  for (const bool clips : {false, true}) {
    for (const int devices : {1, 3}) {
      SCOPED_TRACE(clips);
      SCOPED_TRACE(devices);
      TestCase test = MixedCase(10, devices);
      test.cluster.job.mutable_communication()->set_policy(Communication::ALL_SFB);
      test.like_a_gpu = devices > 1;
      UpdateRuleSpec& rule = *test.cluster.work.model.mutable_update_rule();
      rule.set_momentum(0.9F);
      rule.set_weight_decay(0.01F);
      const Parameters plain = Train(OnHosts(test));
      rule.set_deferred(true);
      if (clips) {
        test.trainer.deferred.clip_gradients = 0.5;
      } else {
        test.trainer.deferred.lars.emplace().set_trust_coefficient(0.1F);
      }
      const Parameters expected = Train(OnHosts(test));
      EXPECT_GT(Difference(expected, plain), 1e-3);
      EXPECT_LE(Difference(Train(test), expected), devices == 1 ? 0 : RoundingBound(test));
    }
  }
}

// The old plan's memory goes while copies from it may be under way, and layers that sent gradients
// send factors.
TEST(WorkerNetTest, GoesOverToAnotherPlan) {
  for (const auto& [deferred, like_a_gpu] :
       {std::pair(false, false), {false, true}, {true, false}}) {
    SCOPED_TRACE(deferred);
    SCOPED_TRACE(like_a_gpu);
    TestCase test = MixedCase(100, 2);
    test.like_a_gpu = like_a_gpu;
    test.cluster.job.mutable_communication()->set_policy(Communication::ALL_PS);
    UpdateRuleSpec& rule = *test.cluster.work.model.mutable_update_rule();
    rule.set_base_lr(0.001F);
    rule.set_deferred(deferred);
    if (deferred) test.trainer.deferred.clip_gradients = 0.5;
    Communication other = test.cluster.job.communication();
    other.set_policy(Communication::ALL_SFB);
    other.set_kv_pair_bytes(28);
    other.set_update_at(Communication::WORKERS);
    wire::PlanAndModel next;
    *next.mutable_model() = DeclaredModel(test);
    *next.mutable_plan() = MakePlan(InformationBook(next.model(), 2, 2), other);
    EXPECT_LE(Difference(Train(test, &next), Train(OnHosts(test))), RoundingBound(test));
  }
}

// A worker waits for one that is slow, and the slow one for nobody.
TEST(WorkerNetTest, DevicesStandStillAsLongAsHostsDo) {
  constexpr std::chrono::milliseconds kSlow(40);
  constexpr int kIterations = 10;
  const Prepare prepare = [=](int /*replica*/, ArithmeticEngine& engine) {
    if (engine.rank() == 1) engine.loss_takes = kSlow;
  };
  for (const bool staged : {false, true}) {
    SCOPED_TRACE(staged);
    TestCase test = MixedCase(kIterations, 1);
    test.staged = staged;
    std::vector<wire::WorkerReport> reports;
    RunOverSockets(
        test.cluster.job, nullptr,
        [&](const WorkerSessionOptions& options) { return TrainWorker(test, options, prepare); },
        &reports);
    const double waited = reports[0].exposed_seconds();
    // A quarter is for whoever is not woken at once.
    EXPECT_GT(waited, 0.75 * kIterations * ToSeconds(kSlow));
    EXPECT_LE(waited, reports[0].exchange_seconds());
    EXPECT_LE(reports[0].exchange_seconds(), reports[0].training_seconds());
    EXPECT_LT(reports[1].exposed_seconds(), 0.5 * waited);
  }
}

// The training thread waits for the forward pass and no longer, so that a device need not stand
// still until it has the next iteration's work.
TEST(WorkerNetTest, TheLossIsThereWhileTheBackwardPassIsComputed) {
  TestCase test = MixedCase(1, 2);
  test.cluster.job.mutable_cluster()->set_workers(1);
  RunOverSockets(test.cluster.job, nullptr, [&](WorkerSessionOptions options) {
    const WorkerDevices devices = DevicesOf(test);
    devices.Describe(options);
    WorkerSession session(options);
    std::promise<void> has_loss;
    const std::shared_future<void> later = has_loss.get_future().share();
    std::vector<std::unique_ptr<Engine>> engines;
    for (int replica = 0; replica < test.devices; ++replica) {
      auto engine = std::make_unique<ArithmeticEngine>(test.cluster.work, replica, 0.5F, false);
      engine->goes_backward_after = later;
      engines.push_back(std::move(engine));
    }
    const ModelSpec model = DeclaredModel(test);
    session.Declare(model);
    const auto net = MakeWorkerNet(engines, devices, session, model, test.trainer);
    net->engine().FillParameters();
    net->PublishValues();
    session.Begin();
    net->LoadBatch(0);
    float expected = 0;
    for (int layer = 0; layer < model.layers_size(); ++layer) {
      net->WaitFresh(layer);
      expected += std::abs(session.values(layer)[0]);
    }
    for (int step = 0; step < engines[0]->steps(); ++step) net->Forward(step);
    for (int step = engines[0]->steps() - 1; step >= 0; --step) net->Backward(step, {});
    EXPECT_FLOAT_EQ(net->Loss(), expected);
    has_loss.set_value();
    for (int layer = model.layers_size() - 1; layer >= 0; --layer) net->GradientReady(layer);
    net->EndIteration();
    session.EndIteration({});
    for (int layer = 0; layer < model.layers_size(); ++layer) net->WaitFresh(layer);
    net->Synchronize();
    session.Finish({});
    return Parameters();
  });
}

// How the one worker of a training ends.
std::string ErrorOf(const TestCase& test, const Prepare& prepare, ExitCode code) {
  std::string message = "none";
  RunOverSockets(test.cluster.job, nullptr, [&](const WorkerSessionOptions& options) {
    try {
      TrainWorker(test, options, prepare);
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.exit_code(), code);
    }
    return Parameters();
  });
  return message;
}

TEST(WorkerNetTest, AnEngineThatFailsEndsTheTrainingWithItsOwnError) {
  for (const int failing : {0, 2}) {
    TestCase test = MixedCase(10, 3);
    test.cluster.job.mutable_cluster()->set_workers(1);
    const Prepare prepare = [=](int replica, ArithmeticEngine& engine) {
      if (replica == failing) engine.fails_at = 4;
    };
    EXPECT_EQ(ErrorOf(test, prepare, ExitCode::kDataError), "record 17 is lost");
  }
}

TEST(WorkerNetTest, ALossThatIsNoNumberEndsTheTraining) {
  TestCase test = MixedCase(10, 2);
  test.cluster.job.mutable_cluster()->set_workers(1);
  const Prepare prepare = [](int replica, ArithmeticEngine& engine) {
    if (replica == 1) engine.diverges_at = 3;
  };
  EXPECT_THAT(ErrorOf(test, prepare, ExitCode::kFailure),
              HasSubstr("the loss of worker 0 is inf in iteration 3; the first layer with such "
                        "numbers is \"fc\", in its result"));
}

}  // namespace
}  // namespace poseidon
