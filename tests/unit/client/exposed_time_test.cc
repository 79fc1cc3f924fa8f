// How long devices stand still for values: what DeviceStaging tells the exchange, against what
// their streams see themselves.
#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <optional>
#include <thread>

#include "client/staging/device_staging.h"
#include "device/host_device.h"
#include "tests/unit/client/device_staging_testing.h"

namespace poseidon {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// Between two moments of a stream and the test's own on either side of them a busy machine may do
// something else.
constexpr milliseconds kSlack(30);

struct Delays {
  milliseconds copy{0};  // either way
  milliseconds wire{0};
  milliseconds compute{0};  // while they are under way
};

// Two layers of one device, that of the first replica if there are several.
class Training {
 public:
  Training(const Delays& delays, size_t replicas)
      : delays_(delays),
        layers_(2, {.floats = 10}),
        network_(1, layers_, [this](int) { return std::chrono::microseconds(delays_.wire); }) {
    for (size_t r = 0; r < replicas; ++r) {
      devices_.push_back(std::make_unique<HostDevice>(HostDevice::Options{
          .before_copy = [this](auto, auto) { std::this_thread::sleep_for(delays_.copy); }}));
      hosts_.push_back(devices_.back().get());
      streams_.push_back(devices_.back()->MakeStream());
      DeviceReplica& replica = descriptions_.emplace_back();
      replica.device = devices_.back().get();
      for (size_t l = 0; l < layers_.size(); ++l) {
        replica.layers.push_back({{Memory()}, {Memory()}, {}, {}});
      }
    }
    stage_.emplace(exchange(), descriptions_, replicas > 1 ? &reduction() : nullptr);
  }

  void Iterate() {
    WaitForAll();
    for (int l = 1; l >= 0; --l) stage_->GradientReady(l, streams_);
    devices_[0]->Run(streams_[0], [this] { std::this_thread::sleep_for(delays_.compute); });
    stage_->EndIteration();
    exchange().EndIteration();
  }

  // Returns how long the first stream stood still, as its thread sees it.
  Clock::duration WaitForAll() {
    Clock::time_point begin, end;
    devices_[0]->Run(streams_[0], [&] { begin = Clock::now(); });
    for (int l = 0; l < 2; ++l) stage_->WaitFresh(l, streams_);
    devices_[0]->Run(streams_[0], [&] { end = Clock::now(); });
    for (size_t d = 0; d < devices_.size(); ++d) devices_[d]->Synchronize(streams_[d]);
    return end - begin;
  }

  Clock::duration WaitAfterIteration() {
    Iterate();
    const Clock::duration stood_still = WaitForAll();
    stage_->RecordExposedTime();
    return stood_still;
  }

  TestExchange& exchange() { return network_.worker(0); }
  DeviceStaging& stage() { return *stage_; }

 private:
  std::span<float> Memory() { return memory_.emplace_back(10, 0.0F); }
  HostLocalReduction& reduction() { return reduction_.emplace(hosts_); }

  Delays delays_;
  std::vector<TestLayer> layers_;
  TestNetwork network_;
  std::deque<Floats> memory_;
  std::vector<std::unique_ptr<HostDevice>> devices_;
  std::vector<HostDevice*> hosts_;
  std::vector<DeviceStream> streams_;
  std::vector<DeviceReplica> descriptions_;
  std::optional<HostLocalReduction> reduction_;
  std::optional<DeviceStaging> stage_;
};

TEST(ExposedTime, IsThatOfTheStreamNotOfTheCopiesOrTheWire) {
  for (const size_t replicas : {1, 2}) {
    for (const Delays& delays : {Delays{.wire = milliseconds(60)}, Delays{.copy = milliseconds(30)},
                                 Delays{.wire = milliseconds(60), .compute = milliseconds(60)},
                                 Delays{.copy = milliseconds(20), .compute = milliseconds(30)}}) {
      Training training(delays, replicas);
      const Clock::duration stood_still = training.WaitAfterIteration();
      const Duration told = training.exchange().exposed.back();
      EXPECT_LE(told, stood_still);
      EXPECT_GE(told, stood_still - kSlack);
      // Layers come one after the other; when the stream is asked to wait, gradients have left.
      const milliseconds still_to_come = 2 * delays.wire + delays.copy;
      EXPECT_GE(told, still_to_come - delays.compute - kSlack);
    }
  }
}

TEST(ExposedTime, IsNoneWhereValuesAreThereWhenTheyAreNeeded) {
  Training training({}, 1);
  training.Iterate();
  for (int l = 0; l < 2; ++l) {
    while (!training.exchange().IsFresh(l, 1)) std::this_thread::sleep_for(milliseconds(1));
  }
  training.stage().Drain();
  training.WaitForAll();
  training.stage().RecordExposedTime();
  EXPECT_EQ(training.exchange().exposed.back(), Duration());
}

// Each is told before the first gradient of the iteration that it was waited in, so that the
// exchange before that has it; twice for nothing.
TEST(ExposedTime, BelongsToTheExchangeWhoseValuesWereAwaited) {
  Training training({.wire = milliseconds(20)}, 1);
  training.exchange().Forget(0);  // the first values come late
  const Clock::time_point begin = Clock::now();
  Clock::time_point published;
  std::thread first([&] {
    std::this_thread::sleep_for(milliseconds(50));
    published = Clock::now();
    training.exchange().Publish(0, 1);
  });
  constexpr int kIterations = 3;
  std::vector<Clock::duration> stood_still;
  Clock::duration late{};  // until the first wait begins, on a busy machine
  for (int i = 0; i < kIterations; ++i) {
    if (i == 0) late = Clock::now() - begin;
    stood_still.push_back(training.WaitForAll());
    training.WaitForAll();
    training.Iterate();
  }
  first.join();
  stood_still.push_back(training.WaitForAll());
  training.stage().RecordExposedTime();
  ASSERT_EQ(training.exchange().exposed.size(), kIterations + 1U);
  for (int i = 0; i <= kIterations; ++i) {
    EXPECT_LE(training.exchange().exposed[i], stood_still[i]) << i;
    EXPECT_GE(training.exchange().exposed[i], stood_still[i] - kSlack) << i;
  }
  EXPECT_GE(stood_still[0], published - begin - late - kSlack);
}

}  // namespace
}  // namespace poseidon
