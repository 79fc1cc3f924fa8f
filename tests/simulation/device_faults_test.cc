// What becomes of a worker whose device fails, hangs or has no memory left: a process of its own
// ends with a documented code and says which layer it was, within the deadlines of the job.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <string>

#include "core/error.h"
#include "tests/simulation/net_training.h"

namespace poseidon {
namespace {

// After which a wait of the one worker's gives up: twice this (WorkerSession).
constexpr int kStallDeadlineSeconds = 1;
// A layer of MixedTraining's, and its bytes.
constexpr size_t kFcBytes = sizeof(float) * (30 * 40 + 30);

struct Fault {
  std::string name{};
  Communication::Policy policy = Communication::ALL_PS;
  int devices = 1;
  std::function<void(TestCase& test)> plant = {};
  // Of replica 0: its engine fails; its device fails at some work.
  std::function<void(ArithmeticEngine& engine)> engine = {};
  ExitCode code = ExitCode::kFailure;
  bool recovers = false;
  bool kernel = false;
  std::string says{};  // a regular expression
};

std::function<void(CopyDirection, size_t)> OnThirdCopyOf(CopyDirection direction,
                                                         std::function<void()> fault) {
  const auto copies = std::make_shared<std::atomic<int>>(0);
  return [=](CopyDirection d, size_t bytes) {
    if (d == direction && bytes == kFcBytes && ++*copies == 3) fault();
  };
}

void BreakDown() { throw std::runtime_error("unspecified launch failure"); }
void Hang() { std::promise<void>().get_future().wait(); }

void HangInThirdForwardPass(ArithmeticEngine& engine) {
  engine.at_step = [](int64_t pass, int step, bool backward) {
    if (pass == 2 && step == 1 && !backward) Hang();
  };
}

const Fault kFaults[] = {
    {.name = "CopyToHostFails",
     .plant =
         [](TestCase& t) {
           t.device.before_copy = OnThirdCopyOf(CopyDirection::kToHost, BreakDown);
         },
     .says =
         "the worker: worker.s .*gradient of layer fc.* can.t be copied: host device has failed: "
         "unspecified launch failure"},
    {.name = "CopyToDeviceFails",
     .plant =
         [](TestCase& t) {
           t.device.before_copy = OnThirdCopyOf(CopyDirection::kToDevice, BreakDown);
         },
     .says = "values of layer fc.* can.t be copied: host device has failed"},
    {.name = "CopyToHostHangs",
     .plant =
         [](TestCase& t) { t.device.before_copy = OnThirdCopyOf(CopyDirection::kToHost, Hang); },
     .code = ExitCode::kDeadlineExceeded,
     .says = "gave up waiting for the gradient of layer fc, iteration 2, to come from host device"},
    // On the way to the device nobody waits on the host; what comes of it does not come. The second
    // values, after those that the device has published.
    {.name = "CopyToDeviceHangs",
     .plant =
         [](TestCase& t) { t.device.before_copy = OnThirdCopyOf(CopyDirection::kToDevice, Hang); },
     .code = ExitCode::kDeadlineExceeded,
     .says = "gave up waiting for the gradient of layer fc, iteration 1, to come from host device"},
    {.name = "KernelFails",
     .kernel = true,
     .says = "gradient of layer fc.* can.t be copied: host device has failed: trap"},
    {.name = "KernelFailsWhereNothingLeavesTheDevice",
     .policy = Communication::ALL_RING,
     .kernel = true,
     .says = "host device has failed: trap"},
    {.name = "KernelHangsWhereNothingLeavesTheDevice",
     .policy = Communication::ALL_RING,
     .engine = HangInThirdForwardPass,
     .code = ExitCode::kDeadlineExceeded,
     .says = "gave up waiting for the forward pass of iteration 2 to end on host device"},
    // Of two passes.
    {.name = "KernelHangsInAPassWhoseGradientStays",
     .plant = [](TestCase& t) { t.trainer.passes = PassSchedule(2, {}); },
     .engine = HangInThirdForwardPass,
     .code = ExitCode::kDeadlineExceeded,
     .says = "gave up waiting for the forward pass of iteration 1 to end on host device"},
    {.name = "KernelFailsAndTheJobGoesOn",
     .code = ExitCode::kGivenUp,
     .recovers = true,
     .kernel = true,
     .says = "gradient of layer fc.* host device has failed: trap; .* start it again"},
    // These are no device's, though it does nothing behind them.
    {.name = "DataThatCannotBeReadEndTheJobThatRecovers",
     .devices = 2,
     .engine = [](ArithmeticEngine& engine) { engine.fails_at = 2; },
     .code = ExitCode::kDataError,
     .recovers = true,
     .says = "record 17 is lost"},
    {.name = "ALossThatIsNoNumberEndsTheJobThatRecovers",
     .devices = 2,
     .engine = [](ArithmeticEngine& engine) { engine.diverges_at = 2; },
     .recovers = true,
     .says = "iteration 2"},
    {.name = "KernelOfOneOfSeveralFails",
     .devices = 4,
     .kernel = true,
     .says = "host device has failed"},
    {.name = "MemoryIsFull",
     .plant =
         [](TestCase& t) {
           t.device.before_allocate = [](size_t bytes) {
             if (bytes < kFcBytes) return;
             throw Error(ExitCode::kFailure, "CUDA can't find 4 MiB of memory on host device");
           };
         },
     .says = "can.t find 4 MiB of memory"},
};

class DeviceFaults : public testing::TestWithParam<Fault> {};

void TrainWith(const Fault& fault) {
  TestCase test;
  test.cluster = MixedTraining(1000, {});
  test.cluster.job.mutable_cluster()->set_workers(1);
  test.cluster.job.mutable_communication()->set_policy(fault.policy);
  test.cluster.job.mutable_communication()->set_stall_deadline_seconds(kStallDeadlineSeconds);
  if (fault.recovers) test.cluster.job.mutable_recovery()->set_mode(Recovery::REPLACE);
  test.devices = fault.devices;
  test.like_a_gpu = true;
  test.ends_at_once = true;
  test.trainer.max_iter = test.cluster.work.iterations;
  if (fault.plant) fault.plant(test);
  RunOverSockets(test.cluster.job, nullptr, [&](WorkerSessionOptions options) {
    options.goes_back = fault.recovers;
    return TrainWorker(test, options, [&](int replica, ArithmeticEngine& engine) {
      if (replica != 0) return;
      if (fault.kernel) engine.device_fails_at = 2;
      if (fault.engine) fault.engine(engine);
    });
  });
}

// The process may take the deadline, and what a busy machine adds; it must not take for ever, which
// the time limit of the test holds.
TEST_P(DeviceFaults, EndTheProcessWithACodeAndTheLayer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const Fault& fault = GetParam();
  EXPECT_EXIT(TrainWith(fault), testing::ExitedWithCode(static_cast<int>(fault.code)), fault.says);
}

// Two workers of a job that recovers, in which nobody takes a lost one's place.
TestCase Recovering() {
  TestCase test;
  test.cluster = MixedTraining(1000, {});
  Job& job = test.cluster.job;
  job.mutable_cluster()->set_workers(2);
  job.mutable_cluster()->set_join_deadline_seconds(6);
  job.mutable_communication()->set_policy(Communication::ALL_PS);
  job.mutable_communication()->set_stall_deadline_seconds(kStallDeadlineSeconds);
  job.mutable_communication()->set_heartbeat_deadline_seconds(3);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  job.mutable_recovery()->set_replacement_deadline_seconds(1);
  test.like_a_gpu = true;
  test.ends_at_once = true;
  test.trainer.max_iter = test.cluster.work.iterations;
  return test;
}

// A device of one of the two hangs: the others go on without that worker, which hears it.
TEST(DeviceLosses, AWorkerWhoseDeviceHangsIsGivenUp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto train = [] {
    TestCase test = Recovering();
    test.device.before_copy = OnThirdCopyOf(CopyDirection::kToHost, Hang);
    RunOverSockets(test.cluster.job, nullptr, [&](WorkerSessionOptions options) {
      options.goes_back = true;
      return TrainWorker(test, options, nullptr);
    });
  };
  EXPECT_EXIT(train(), testing::ExitedWithCode(static_cast<int>(ExitCode::kGivenUp)),
              "the job goes on without this node");
}

// The other worker dies, and the job ends: that is told as it is, not as a device's failure.
TEST(DeviceLosses, AJobThatEndsIsNoDevicesFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  struct Dies : std::exception {};
  const auto train = [] {
    const TestCase test = Recovering();
    RunOverSockets(test.cluster.job, nullptr, [&](WorkerSessionOptions options) {
      options.goes_back = true;
      const bool mortal = options.wanted_rank == 1;
      try {
        return TrainWorker(test, options, [&](int, ArithmeticEngine& engine) {
          engine.at_step = [mortal](int64_t pass, int, bool) {
            if (mortal && pass == 2) throw Dies();
          };
        });
      } catch (const Dies&) {
        return Parameters();
      }
    });
  };
  EXPECT_EXIT(train(), testing::ExitedWithCode(static_cast<int>(ExitCode::kDeadlineExceeded)),
              "nobody took the place");
}

INSTANTIATE_TEST_SUITE_P(Planted, DeviceFaults, testing::ValuesIn(kFaults),
                         [](const auto& drawn) { return drawn.param.name; });

}  // namespace
}  // namespace poseidon
