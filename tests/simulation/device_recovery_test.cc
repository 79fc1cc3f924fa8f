// Workers with devices, in jobs that go on after a loss: they die in the middle of an iteration, by
// real sockets, while passes run and copies are under way, and the job ends with the bits of one in
// which nobody died.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <future>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/files/regular_file.h"
#include "tests/simulation/net_training.h"
#include "tests/unit/temporary_directory.h"
#include "transport/events/event_file.h"

namespace poseidon {
namespace {

// What a worker's engine throws to die: nobody is told, and all its memory is lost.
struct Dies : std::exception {};

// The first life of this worker ends here.
struct Death {
  int rank = 0;
  int64_t pass = 0;
  int step = 0;
  bool backward = false;
};

constexpr std::chrono::seconds kPatience{30};
// Longer than a job takes to go on once all processes are there.
constexpr std::chrono::milliseconds kMoment{300};

// What happens to a job: a worker dies, and where `holds`, somebody else's device is in the middle
// of that pass then, until some time after another process has come.
struct Life {
  Death death;
  bool holds = false;
  std::shared_future<void> dies_after{};  // if valid
  std::atomic<int> deaths = 0;
  std::atomic<bool> begun = false;
  std::atomic<bool> holding = false;
  std::promise<void> held{};
  std::promise<void> replaced{};
};

void Hold(Life& life, int64_t pass, int step) {
  if (!life.holds || pass != life.death.pass || step != life.death.step / 2) return;
  if (life.begun.exchange(true)) return;
  life.holding = true;
  life.held.set_value();
  EXPECT_EQ(life.replaced.get_future().wait_for(kPatience), std::future_status::ready);
  std::this_thread::sleep_for(kMoment);
  life.holding = false;
}

[[noreturn]] void Die(Life& life) {
  if (life.holds) {
    EXPECT_EQ(life.held.get_future().wait_for(kPatience), std::future_status::ready);
  }
  if (life.dies_after.valid()) {
    EXPECT_EQ(life.dies_after.wait_for(kPatience), std::future_status::ready);
  }
  throw Dies();
}

// Trains, and again in the place of the one that has died, as a supervisor has it.
Parameters TrainWithLives(const TestCase& test, WorkerSessionOptions options, Life& life) {
  const Death& death = life.death;
  options.goes_back = true;
  options.incarnation = 1000 + static_cast<uint64_t>(options.wanted_rank);
  const bool mortal = options.wanted_rank == death.rank;
  try {
    return TrainWorker(test, options, [&](int replica, ArithmeticEngine& engine) {
      engine.at_step = [&, dies = mortal && replica == 0](int64_t pass, int step, bool backward) {
        if (!mortal) Hold(life, pass, step);
        const bool here = pass == death.pass && step == death.step && backward == death.backward;
        if (dies && here) Die(life);
      };
    });
  } catch (const Dies&) {
    ++life.deaths;
  }
  options.replaces = options.incarnation;
  options.incarnation += 1000;
  return TrainWorker(test, options, [&](int replica, ArithmeticEngine& engine) {
    if (replica == 0) life.replaced.set_value();
    engine.at_step = [&](int64_t, int, bool) {
      EXPECT_FALSE(life.holding) << "the job goes on, and a device is not done";
    };
  });
}

Parameters TrainWithLives(const TestCase& test, Life& life) {
  const Parameters parameters = RunOverSockets(
      test.cluster.job, nullptr,
      [&](const WorkerSessionOptions& options) { return TrainWithLives(test, options, life); });
  EXPECT_EQ(life.deaths, life.death.pass >= 0 ? 1 : 0);
  return parameters;
}

// A random job that recovers, whose workers have devices of some kind.
TestCase RandomCase(uint64_t seed, Communication::Policy policy) {
  using C = Communication;
  std::mt19937 random(seed);
  TestCase test;
  test.cluster = RandomTraining(seed);
  Job& job = test.cluster.job;
  job.mutable_cluster()->set_workers(2 + static_cast<int>(random() % 2));
  job.mutable_cluster()->set_servers(2);
  Communication& communication = *job.mutable_communication();
  communication.set_policy(policy);
  const bool at_servers = policy == C::ALL_ADAM || (policy == C::ALL_PS && random() % 2 == 0);
  communication.set_update_at(at_servers ? C::SERVERS : C::WORKERS);
  if (policy == C::ALL_PS && !at_servers && random() % 2 == 0) communication.set_codec(FP16);
  communication.set_deterministic(true);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  constexpr int kDevices[] = {1, 1, 2, 4};
  test.devices = kDevices[random() % 4];
  test.like_a_gpu = test.devices == 1 || random() % 2 == 0;
  test.cluster.work.iterations = 4 + static_cast<int64_t>(random() % 4);
  test.trainer.max_iter = test.cluster.work.iterations;
  if (random() % 2 == 0) test.trainer.passes = PassSchedule(2, {});
  return test;
}

Death RandomDeath(const TestCase& test, std::mt19937& random) {
  const int steps = test.cluster.work.model.layers_size() + 1;
  const int64_t passes = test.trainer.passes.PassesBefore(test.trainer.max_iter);
  Death death;
  death.rank =
      static_cast<int>(random() % static_cast<uint64_t>(test.cluster.job.cluster().workers()));
  // Not the first pass: before it nobody has the parameters.
  death.pass = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(passes - 1));
  death.step = static_cast<int>(random() % static_cast<uint64_t>(steps));
  death.backward = random() % 2 == 0;
  return death;
}

void ExpectNothingChanged(uint64_t begin, uint64_t end) {
  for (uint64_t seed = begin; seed < end; ++seed) {
    using C = Communication;
    constexpr C::Policy kPolicies[] = {C::ALL_PS,    C::ALL_SFB,  C::ALL_RING,
                                       C::ALL_TORUS, C::ALL_ADAM, C::ALL_HALVING_DOUBLING};
    const Communication::Policy policy = kPolicies[seed % std::size(kPolicies)];
    const TestCase test = RandomCase(seed, policy);
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + Communication::Policy_Name(policy) + ", " +
                 std::to_string(test.devices) + " device(s)" +
                 (test.like_a_gpu ? " like GPUs" : ""));
    std::mt19937 random(seed + 1000);
    Life whole{.death = {.pass = -1}};
    const Parameters undisturbed = TrainWithLives(test, whole);
    const Death death = RandomDeath(test, random);
    SCOPED_TRACE("worker " + std::to_string(death.rank) + " dies in pass " +
                 std::to_string(death.pass) + ", step " + std::to_string(death.step) +
                 (death.backward ? ", backward" : ""));
    Life life{.death = death, .holds = random() % 3 > 0};
    EXPECT_EQ(TrainWithLives(test, life), undisturbed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DeviceRecoveryTest, ALossChangesNothing) { ExpectNothingChanged(0, 12); }
TEST(DeviceRecoveryTest, SlowALossChangesNothing) { ExpectNothingChanged(12, 400); }

// Worker 1 dies when worker 0 has tested with the parameters of an iteration that worker 2 has not
// made all updates for, so that the job goes back behind it.
TEST(DeviceRecoveryTest, WhoLeadsTestsAgainAfterGoingBack) {
  constexpr int64_t kTested = 3;
  TestCase test;
  test.cluster = MixedTraining(kTested + 1, {});
  Job& job = test.cluster.job;
  job.mutable_cluster()->set_workers(3);
  job.mutable_communication()->set_policy(Communication::ALL_RING);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  test.cluster.work.model.mutable_update_rule()->set_deferred(true);
  test.trainer.deferred.clip_gradients = 0.5;
  test.staged = false;
  test.trainer.max_iter = test.cluster.work.iterations;
  test.trainer.test_interval = kTested;
  test.trainer.test_initialization = false;
  std::promise<void> tested;
  Life life{
      .death = {.rank = 1, .pass = kTested}, .holds = true, .dies_after = tested.get_future()};
  std::atomic<int> tests = 0;
  RunOverSockets(job, nullptr, [&](WorkerSessionOptions options) {
    if (options.wanted_rank != 0) return TrainWithLives(test, options, life);
    options.goes_back = true;
    return TrainWorker(test, options, [&](int, ArithmeticEngine& engine) {
      engine.at_test = [&] {
        if (++tests == 1) tested.set_value();
      };
    });
  });
  EXPECT_EQ(life.deaths, 1);
  EXPECT_EQ(tests, 3) << "twice with the parameters of iteration 3, and at the end";
}

// Worker 1 dies when the others wait for it to begin, before they know of any layer that they wait
// for.
TEST(DeviceRecoveryTest, EventsHaveTheNamesOfThePlanThatTrainingBeginsWith) {
  const TemporaryDirectory directory;
  TestCase test;
  test.cluster = MixedTraining(2, {});
  Job& job = test.cluster.job;
  job.mutable_cluster()->set_workers(2);
  job.mutable_training()->set_trace(true);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  test.staged = false;
  test.trainer.max_iter = test.cluster.work.iterations;
  RunOverSockets(job, nullptr, [&](WorkerSessionOptions options) {
    options.goes_back = true;
    options.trace_directory = directory.path();
    if (options.wanted_rank == 1) {
      options.incarnation = 1000;
      WorkerSession(options).Declare(DeclaredModel(test));
      options.replaces = std::exchange(options.incarnation, 2000);
    }
    return TrainWorker(test, options, nullptr);
  });
  const std::string path = directory.Path(EventFileName({Role::kWorker, 0}));
  const EventFile events = ParseEventFile(ReadRegularFile(path, ExitCode::kDataError), path);
  EXPECT_EQ(events.layers, (std::vector<std::string>{"conv", "scale", "fc"}));
  EXPECT_FALSE(events.buckets.empty());
}

}  // namespace
}  // namespace poseidon
