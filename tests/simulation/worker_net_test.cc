// The training loop over real sockets: nets on devices, one or several replicas in a worker, come
// to what engines on the hosts come to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <map>
#include <mutex>
#include <random>

#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "tests/simulation/net_training.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

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

// By how much devices may differ from `hosts`. A sum of replicas is packed once, those of workers
// each by itself: neither is farther from what is not packed than `hosts` are, which have packed
// most.
double Tolerance(const TestCase& test, const Parameters& hosts) {
  const double rounding = RoundingBound(test);
  if (test.cluster.job.communication().codec() == FP32) return rounding;
  TestCase exact = OnHosts(test);
  exact.cluster.job.mutable_communication()->set_codec(FP32);
  return rounding + 2 * Difference(Train(exact), hosts);
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
      const Parameters hosts = Train(OnHosts(test));
      EXPECT_LE(Difference(Train(test), hosts), devices == 1 ? 0 : Tolerance(test, hosts));
    }
  }
}

// Whatever brings the gradients together, one worker or several, each with so many replicas.
TEST(WorkerNetTest, DevicesUpdateAsHostsDo) {
  using C = Communication;
  for (const int devices : {1, 2, 4, 8}) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      SCOPED_TRACE(devices);
      SCOPED_TRACE(seed);
      std::mt19937 random(seed * 8 + static_cast<uint64_t>(devices));
      SimulatedClusterOptions options = RandomTraining(random());
      options.job.mutable_cluster()->set_workers(1 + static_cast<int>(random() % 3));
      Communication& communication = *options.job.mutable_communication();
      const C::Policy policies[] = {C::ALL_RING, C::ALL_TORUS, C::ALL_HALVING_DOUBLING, C::ALL_PS};
      communication.set_policy(policies[random() % 4]);
      communication.set_update_at(C::WORKERS);
      TestCase test = MakeCase(options, devices, RandomPasses(random));
      const Parameters expected = Train(test);
      test.like_a_gpu = true;
      EXPECT_EQ(Train(test), expected) << C::Policy_Name(communication.policy());
    }
  }
}

// One worker, of whom all plans make the same bits: so state that gets lost on its way from the
// devices to the host, and from there to servers or back, shows whenever the job goes over.
TEST(WorkerNetTest, StateOfDevicesGoesOverToAnotherPlan) {
  for (const int devices : {1, 3}) {
    for (const bool to_servers : {true, false}) {
      SCOPED_TRACE(devices);
      SCOPED_TRACE(to_servers);
      TestCase test = MixedCase(100, devices);
      test.cluster.job.mutable_cluster()->set_workers(1);
      Communication& communication = *test.cluster.job.mutable_communication();
      Communication other = communication;
      communication.set_policy(to_servers ? Communication::ALL_RING : Communication::ALL_PS);
      other.set_policy(to_servers ? Communication::ALL_PS : Communication::ALL_RING);
      UpdateRuleSpec& rule = *test.cluster.work.model.mutable_update_rule();
      rule.set_base_lr(0.001F);
      rule.set_momentum(0.9F);
      const Parameters expected = Train(test);
      test.like_a_gpu = true;
      wire::PlanAndModel next;
      *next.mutable_model() = DeclaredModel(test);
      *next.mutable_plan() = MakePlan(InformationBook(next.model(), 1, 2), other);
      EXPECT_EQ(Train(test, &next), expected);
    }
  }
}

// Of one replica or several, whose sum is packed once; and so under another plan with the same KV
// pairs.
void ExpectDevicesPackAsHostsDo(const std::vector<WireCodec>& codecs) {
  for (const WireCodec codec : codecs) {
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

TEST(WorkerNetTest, DevicesPackAsHostsDo) { ExpectDevicesPackAsHostsDo({INT8}); }

TEST(WorkerNetTest, SlowDevicesPackAsHostsDo) {
  ExpectDevicesPackAsHostsDo({FP16, ONE_BIT, TOP_K});
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

// What devices have had at most, of all of a training's workers.
class DeviceBytes {
 public:
  void Count(HostDevice::Options& device) {
    device.before_allocate = [this](size_t bytes) { Add(static_cast<int64_t>(bytes)); };
    device.after_free = [this](size_t bytes) { Add(-static_cast<int64_t>(bytes)); };
  }
  int64_t most() const { return most_; }

 private:
  void Add(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    now_ += bytes;
    most_ = std::max(most_, now_);
  }

  std::mutex mutex_;
  int64_t now_ = 0;
  int64_t most_ = 0;
};

// Layers that sent gradients send factors, and the other way round.
TEST(WorkerNetTest, ADeviceThatHasRoomForEitherPlanGoesOver) {
  for (const auto& [policy, next_policy] :
       {std::pair(Communication::ALL_PS, Communication::ALL_SFB),
        {Communication::ALL_SFB, Communication::ALL_PS}}) {
    TestCase test = MixedCase(100, 2);
    test.like_a_gpu = true;
    Communication& communication = *test.cluster.job.mutable_communication();
    wire::PlanAndModel next;
    *next.mutable_model() = DeclaredModel(test);
    std::atomic<int> releases = 0;
    const auto most = [&](Communication::Policy begins, const wire::PlanAndModel* plan) {
      DeviceBytes bytes;
      bytes.Count(test.device);
      communication.set_policy(begins);
      RunOverSockets(test.cluster.job, plan, [&](const WorkerSessionOptions& options) {
        return TrainWorker(test, options, [&](int, ArithmeticEngine& engine) {
          engine.at_release = [&] { ++releases; };
        });
      });
      return bytes.most();
    };
    const int64_t room = std::max(most(policy, nullptr), most(next_policy, nullptr));
    EXPECT_EQ(releases, 0);
    communication.set_policy(next_policy);
    *next.mutable_plan() = MakePlan(InformationBook(next.model(), 2, 2), communication);
    EXPECT_LE(most(policy, &next), room);
    EXPECT_EQ(releases, 4) << "of two workers with two replicas each";
  }
}

// Of a training in which worker 1 takes so much longer for each loss.
std::vector<wire::WorkerReport> ReportsWithASlowWorker(const TestCase& test,
                                                       std::chrono::milliseconds slow) {
  const Prepare prepare = [=](int /*replica*/, ArithmeticEngine& engine) {
    if (engine.rank() == 1) engine.loss_takes = slow;
  };
  std::vector<wire::WorkerReport> reports;
  RunOverSockets(
      test.cluster.job, nullptr,
      [&](const WorkerSessionOptions& options) { return TrainWorker(test, options, prepare); },
      &reports);
  return reports;
}

// A worker waits for one that is slow, and the slow one for nobody.
TEST(WorkerNetTest, DevicesStandStillAsLongAsHostsDo) {
  constexpr int kIterations = 10;
  for (const bool staged : {false, true}) {
    SCOPED_TRACE(staged);
    TestCase test = MixedCase(kIterations, 1);
    test.staged = staged;
    // On a busy machine both wait for a core, and how long does not depend on how slow one is.
    bool slow_one_waits = true;
    for (std::chrono::milliseconds slow(40); slow_one_waits && slow < Seconds(2); slow *= 3) {
      const std::vector<wire::WorkerReport> reports = ReportsWithASlowWorker(test, slow);
      const double waited = reports[0].exposed_seconds();
      // A quarter is for whoever is not woken at once.
      EXPECT_GT(waited, 0.75 * kIterations * ToSeconds(slow));
      EXPECT_LE(waited, reports[0].exchange_seconds());
      EXPECT_LE(reports[0].exchange_seconds(), reports[0].training_seconds());
      slow_one_waits = reports[1].exposed_seconds() >= 0.5 * waited;
    }
    EXPECT_FALSE(slow_one_waits);
  }
}

// Whoever takes a lost worker 0's place tests what the job began with.
TEST(WorkerNetTest, EveryWorkerReadsTheLayersThatOnlyTestsHave) {
  TestCase test = MixedCase(1, 1);
  test.trainer.weights = {"a.caffemodel", "b.caffemodel"};
  std::mutex mutex;
  std::map<int, std::vector<std::string>> read;  // by rank
  const Prepare prepare = [&](int /*replica*/, ArithmeticEngine& engine) {
    engine.at_test_layers = [&, rank = engine.rank()](const std::string& caffemodel) {
      const std::lock_guard lock(mutex);
      read[rank].push_back(caffemodel);
    };
  };
  RunOverSockets(test.cluster.job, nullptr, [&](const WorkerSessionOptions& options) {
    return TrainWorker(test, options, prepare);
  });
  EXPECT_THAT(read, testing::ElementsAre(testing::Pair(0, test.trainer.weights),
                                         testing::Pair(1, test.trainer.weights)));
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
  for (const int failing : {0, 1, 2}) {
    TestCase test = MixedCase(10, 3);
    test.like_a_gpu = failing == 1;
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
