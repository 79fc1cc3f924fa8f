#include "client/staging/device_staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <future>

#include "core/random.h"
#include "device/host_device.h"
#include "tests/unit/client/staged_worker.h"

namespace poseidon {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

// The same training without devices, threads or buffers between.
struct Trained {
  Floats values;
  Floats state;  // where devices update from gradients
};
std::vector<Trained> TrainDirectly(const std::vector<TestLayer>& layers, int devices,
                                   int64_t iterations, TestNetwork& network) {
  const int workers = static_cast<int>(network.workers());
  std::vector<Trained> all;
  for (size_t l = 0; l < layers.size(); ++l) {
    const TestLayer& layer = layers[l];
    const std::optional<DenseUpdate> dense = network.worker(0).dense_update(static_cast<int>(l));
    Floats state(layer.floats, 0.0F);
    Floats values(layer.floats, 1.0F);
    for (int64_t iteration = 0; iteration < iterations; ++iteration) {
      Floats sum(layer.floats, 0.0F);
      for (int rank = 0; rank < workers; ++rank) {
        Floats of_worker(layer.floats, 0.0F);
        for (int d = 0; d < devices; ++d) {
          const int index = rank * devices + d;
          if (layer.factors()) {
            Floats u(layer.rows / devices * layer.outputs);
            Floats v(layer.rows / devices * layer.inputs());
            TestGradient(values, index, iteration, u);
            TestGradient(values, index + 1, iteration, v);
            AddProduct(layer, u, v, sum);
            continue;
          }
          Floats gradient(layer.floats);
          TestGradient(values, index, iteration, gradient);
          for (size_t i = 0; i < gradient.size(); ++i) of_worker[i] += gradient[i];
        }
        if (network.devices_pack) Round(kPacked, of_worker);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_worker[i];
      }
      if (dense) {
        UpdateSegmentwise(*dense->rule, iteration, dense->segments, sum, 1, values, state);
        continue;
      }
      for (size_t i = 0; i < sum.size(); ++i) values[i] -= kStep * sum[i];
    }
    all.push_back({values, state});
  }
  return all;
}

std::vector<TestLayer> RandomLayers(size_t devices, Random& random) {
  std::vector<TestLayer> layers(1 + random.Below(8));
  for (TestLayer& layer : layers) {
    layer.floats = 1 + random.Below(random.Chance(0.5) ? 10 : 3000);
    if (!random.Chance(0.3)) continue;
    layer.outputs = 1 + random.Below(20);
    layer.floats = layer.outputs * (1 + random.Below(20));
    layer.rows = devices * (1 + random.Below(3));
  }
  return layers;
}

// Consecutive layers of gradients may share one; factors have one to themselves.
std::vector<int> RandomBuckets(const std::vector<TestLayer>& layers, Random& random) {
  std::vector<int> buckets;
  for (size_t l = 0; l < layers.size(); ++l) {
    const bool joins = l > 0 && !layers[l].factors() && !layers[l - 1].factors();
    if (joins && random.Chance(0.5)) {
      ++buckets.back();
    } else {
      buckets.push_back(1);
    }
  }
  return buckets;
}

bool SameBits(const Floats& a, const Floats& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y);
  });
}

class DeviceStageTest : public testing::TestWithParam<int> {};

TEST_P(DeviceStageTest, TrainsToTheBitsOfTheDirectWay) {
  Random random(GetParam());
  const int workers = 1 + static_cast<int>(random.Below(3));
  const size_t devices = 1 + random.Below(3);
  const int64_t iterations = 4;
  const std::vector<TestLayer> layers = RandomLayers(devices, random);
  std::vector<int> order(layers.size());
  for (size_t l = 0; l < order.size(); ++l) order[l] = static_cast<int>(order.size() - 1 - l);
  if (random.Chance(0.5)) std::swap(order.front(), order.back());
  const uint64_t longest = 1 + random.Below(2000);

  TestNetwork network(workers, layers, [seed = random.Next(), longest](int layer) {
    return microseconds(DeriveSeed(seed, layer) % longest);
  });
  const bool devices_update = random.Chance(0.5);
  network.devices_update = devices_update;
  network.devices_pack = random.Chance(0.5);
  network.devices_update_dense = random.Chance(0.5);
  network.buckets = RandomBuckets(layers, random);
  for (size_t l = 0; l < layers.size(); ++l) {
    if (random.Chance(0.2)) network.to_the_host.insert(static_cast<int>(l));
  }
  std::vector<std::thread> threads;
  const std::vector<Trained> expected =
      TrainDirectly(layers, static_cast<int>(devices), iterations, network);
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank, seed = random.Next()] {
      std::atomic<uint64_t> copies = 0;
      HostDevice::Options options;
      options.before_copy = [&](CopyDirection, size_t) {
        std::this_thread::sleep_for(microseconds(DeriveSeed(seed, ++copies) % longest));
      };
      Worker worker(network.worker(rank), layers, devices, options);
      for (int64_t i = 0; i < iterations; ++i) worker.Iterate(rank, order);
      for (size_t l = 0; l < layers.size(); ++l) {
        worker.stage->WaitFresh(static_cast<int>(l), worker.streams);
      }
      worker.stage->Drain();
      worker.stage->SyncToHost();
      for (const auto& replica : worker.replicas) {
        for (size_t l = 0; l < layers.size(); ++l) {
          EXPECT_TRUE(SameBits(replica->values(static_cast<int>(l)), expected[l].values))
              << "worker " << rank << ", layer " << l << " of " << layers[l].floats;
        }
      }
      for (size_t l = 0; l < layers.size(); ++l) {
        const int layer = static_cast<int>(l);
        EXPECT_TRUE(SameBits(worker.exchange.Values(layer), expected[l].values))
            << "on the host of worker " << rank << ", layer " << l;
        const std::span<float> state = worker.exchange.optimizer_state(layer);
        if (network.devices_update_dense && !layers[l].factors()) {
          EXPECT_TRUE(SameBits({state.begin(), state.end()}, expected[l].state)) << "layer " << l;
        }
        if (!devices_update || !layers[l].factors()) continue;
        EXPECT_EQ(worker.exchange.optimizer_state(layer)[0], iterations);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Seeds, DeviceStageTest, testing::Range(0, 30));

TEST(DeviceStaging, CopiesBothWaysWhileTheWireWorks) {
  constexpr int kLayers = 6;
  constexpr milliseconds kEach(20);  // long against what a busy machine takes to wake a thread
  const std::vector<TestLayer> layers(kLayers, {.floats = 100});
  TestNetwork network(1, layers, [&](int) { return kEach; });
  std::atomic<bool> slow = false;
  HostDevice::Options options;
  options.before_copy = [&](CopyDirection, size_t) {
    if (slow) std::this_thread::sleep_for(kEach);
  };
  Worker worker(network.worker(0), layers, 1, options);
  const std::vector<int> order = {5, 4, 3, 2, 1, 0};
  worker.Iterate(0, order);
  for (int layer = 0; layer < kLayers; ++layer) worker.stage->WaitFresh(layer, worker.streams);
  worker.stage->Drain();
  slow = true;
  // One after the other is 3 kLayers; side by side kLayers, and 2 until the last is through. On a
  // machine where threads wait for a core some iterations take longer than they need, and what
  // does not go side by side never takes less.
  constexpr int kMostIterations = 20;
  auto least = Clock::duration::max();
  for (int i = 0; i < kMostIterations && least >= (2 * kLayers) * kEach; ++i) {
    const Clock::time_point begin = Clock::now();
    worker.Iterate(0, order);
    for (int layer = 0; layer < kLayers; ++layer) worker.stage->WaitFresh(layer, worker.streams);
    worker.stage->Drain();
    least = std::min<Clock::duration>(least, Clock::now() - begin);
  }
  EXPECT_GE(least, (kLayers + 1) * kEach);
  EXPECT_LT(least, (2 * kLayers) * kEach);
}

TEST(DeviceStaging, NeverWaitsForADeviceInGradientReady) {
  const std::vector<TestLayer> layers(3, {.floats = 1000});
  TestNetwork network(1, layers, [](int) { return microseconds(0); });
  std::promise<void> go;
  Worker worker(network.worker(0), layers, 1, {});
  for (int layer = 0; layer < 3; ++layer) worker.stage->WaitFresh(layer, worker.streams);
  // As long as the program's stream stands still, nothing may come to the host, or wait for it.
  worker.replicas[0]->device().Run(worker.streams[0], [&] { go.get_future().wait(); });
  for (int layer = 2; layer >= 0; --layer) {
    worker.replicas[0]->Backward(layer, 0, 0);
    worker.stage->GradientReady(layer, worker.streams);
  }
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_FALSE(worker.exchange.IsFresh(2, 1));
  go.set_value();
  worker.stage->EndIteration();
  worker.exchange.EndIteration();
  worker.stage->WaitFresh(0, worker.streams);
}

// Trains until a copy of `bytes` bytes in a direction fails; what was thrown.
std::string FailOnCopy(CopyDirection direction, size_t floats) {
  const std::vector<TestLayer> layers = {{.floats = 30}, {.floats = 60}, {.floats = 90}};
  TestNetwork network(1, layers, [](int) { return microseconds(100); });
  HostDevice::Options options;
  options.before_copy = [=, first = true](CopyDirection d, size_t bytes) mutable {
    // Of a layer, whose blobs follow each other; not in the first iteration.
    if (d != direction || bytes != floats * sizeof(float)) return;
    if (!std::exchange(first, false)) throw std::runtime_error("the bus caught fire");
  };
  Worker worker(network.worker(0), layers, 1, options);
  try {
    for (int i = 0; i < 5; ++i) worker.Iterate(0, {2, 1, 0});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// The gradient that is waited for comes while another is handed over, where the exchange reads all
// its news: so it is in a net whose layers' gradients leave in an order of their own.
TEST(DeviceStaging, HandsOverWhatHasComeMeanwhileWithoutAnotherWord) {
  const std::vector<TestLayer> layers = {{.floats = 3}, {.floats = 300}};
  TestNetwork network(2, layers, [](int) { return microseconds(0); });
  std::promise<void> both_leave, first_came;
  HostDevice::Options options;
  options.before_copy = [first = both_leave.get_future().share(),
                         second = first_came.get_future().share()](CopyDirection direction,
                                                                   size_t bytes) {
    if (direction == CopyDirection::kToDevice) return;
    bytes > 3 * sizeof(float) ? second.wait() : first.wait();
  };
  Worker worker(network.worker(0), layers, 1, options);
  worker.exchange.at_gradient_ready = [&](int layer) {
    if (layer == 1) return;
    first_came.set_value();
    worker.exchange.TakeNews(/*wakes=*/2);
    worker.exchange.waits = 0;
  };
  for (const int layer : {0, 1}) worker.stage->WaitFresh(layer, worker.streams);
  for (const int layer : {0, 1}) worker.stage->GradientReady(layer, worker.streams);
  both_leave.set_value();
  worker.stage->EndIteration();
  EXPECT_EQ(worker.exchange.waits, 0);
}

TEST(DeviceStaging, ACopyThatFailsIsAnErrorWithTheLayer) {
  EXPECT_THAT(FailOnCopy(CopyDirection::kToHost, 60),
              AllOf(HasSubstr("gradient of layer layer1"), HasSubstr("can't be copied"),
                    HasSubstr("host device"), HasSubstr("the bus caught fire")));
  EXPECT_THAT(FailOnCopy(CopyDirection::kToDevice, 90),
              AllOf(HasSubstr("values of layer layer2"), HasSubstr("the bus caught fire")));
}

// One replica's device fails while the other's copies: its memory is free only when that is done.
TEST(DeviceStaging, WaitsForTheCopiesOfDevicesThatHaveNotFailed) {
  const std::vector<TestLayer> layers = {{.floats = 10}};
  TestNetwork network(1, layers, [](int) { return microseconds(0); });
  std::promise<void> began;
  std::atomic<bool> slow = false;
  std::atomic<bool> under_way = false;
  HostDevice::Options options;
  options.before_copy = [&](CopyDirection direction, size_t) {
    if (direction != CopyDirection::kToDevice || !slow.exchange(false)) return;
    under_way = true;
    began.set_value();
    std::this_thread::sleep_for(milliseconds(50));
    under_way = false;
  };
  Worker worker(network.worker(0), layers, 2, options);
  worker.stage->WaitFresh(0, worker.streams);
  worker.stage->Drain();
  HostDevice& broken = worker.replicas[0]->device();
  HostDevice& copying = worker.replicas[1]->device();
  slow = true;
  copying.Copy(copying.copy_stream(CopyDirection::kToDevice), nullptr, nullptr, 0);
  began.get_future().wait();
  broken.Run(worker.streams[0], [] { throw std::runtime_error("no such address"); });
  broken.Synchronize(worker.streams[0]);
  worker.stage.reset();
  EXPECT_FALSE(under_way);
}

TEST(DeviceStaging, ACopyThatNeverEndsMeetsTheDeadline) {
  const std::vector<TestLayer> layers = {{.floats = 10}};
  TestNetwork network(1, layers, [](int) { return microseconds(0); });
  network.worker(0).patience = milliseconds(100);
  std::promise<void> go;
  HostDevice::Options options;
  options.before_copy = [&, first = true](CopyDirection direction, size_t) mutable {
    if (direction == CopyDirection::kToHost && std::exchange(first, false)) go.get_future().wait();
  };
  Worker worker(network.worker(0), layers, 1, options);
  try {
    worker.Iterate(0, {0});
    ADD_FAILURE() << "a gradient came from a copy that never ended";
  } catch (const DeadlineExceeded& error) {
    EXPECT_THAT(error.what(), HasSubstr("the gradient of layer layer0, iteration 0"));
  }
  go.set_value();
}

// As CUDA does where memory is short.
class RefusingDevice : public HostDevice {
 public:
  using HostDevice::HostDevice;
  void Copy(DeviceStream stream, void* to, const void* from, size_t bytes) override {
    if (refuses) throw Error(ExitCode::kFailure, "there is no memory");
    HostDevice::Copy(stream, to, from, bytes);
  }
  bool refuses = false;
};

TEST(DeviceStaging, DoesNotWaitForCopiesThatWereRefused) {
  const std::vector<TestLayer> layers = {{.floats = 10}};
  for (const bool on_the_way_back : {false, true}) {
    TestNetwork network(1, layers, [](int) { return microseconds(0); });
    RefusingDevice device(HostDevice::Options{});
    Floats values(10), gradient(10);
    DeviceReplica replica{&device, {}};
    replica.layers.push_back({{values}, {gradient}, {}, {}});
    auto stage = std::make_unique<DeviceStaging>(network.worker(0), std::vector{replica});
    const std::vector<DeviceStream> streams = {device.MakeStream()};
    if (!on_the_way_back) stage->WaitFresh(0, streams);
    device.refuses = true;
    const auto refused = [&] {
      on_the_way_back ? stage->WaitFresh(0, streams) : stage->GradientReady(0, streams);
    };
    EXPECT_THROW(refused(), Error);
    const std::future<void> gone = std::async(std::launch::async, [&] { stage.reset(); });
    EXPECT_EQ(gone.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  }
}

// The only entry of a kind.
Trace::Event TheEvent(const Trace& trace, const std::string& name, const std::string& layer,
                      const std::string& track, int64_t iteration) {
  std::vector<Trace::Event> found;
  for (const Trace::Event& event : trace.events()) {
    if (event.name == name && event.layer == layer && event.track == track &&
        event.iteration == iteration) {
      found.push_back(event);
    }
  }
  EXPECT_EQ(found.size(), 1) << name << " of " << layer << " in " << track << ", " << iteration;
  return found.empty() ? Trace::Event{} : found[0];
}

TEST(DeviceStaging, WritesDownWhenCopiesWereDone) {
  constexpr int kLayers = 3, kIterations = 3;
  constexpr milliseconds kCopy(3), kCompute(10);
  const std::vector<TestLayer> layers = {
      {.floats = 100}, {.floats = 60, .rows = 4, .outputs = 6}, {.floats = 50}};
  for (const size_t devices : {1, 2}) {
    TestNetwork network(1, layers, [](int) { return microseconds(0); });
    Trace trace("worker", 1000);
    network.worker(0).timeline = &trace;
    HostDevice::Options options;
    options.before_copy = [&](CopyDirection, size_t) { std::this_thread::sleep_for(kCopy); };
    Worker worker(network.worker(0), layers, devices, options);
    // A backward pass is long, so that its end and the call that says that it will be there differ.
    for (const auto& replica : worker.replicas) {
      replica->device().Run(replica->compute(), [=] { std::this_thread::sleep_for(kCompute); });
    }
    const Time called = std::chrono::duration_cast<Time>(Clock::now().time_since_epoch());
    for (int i = 0; i < kIterations; ++i) worker.Iterate(0, {2, 1, 0});
    for (int l = 0; l < kLayers; ++l) worker.stage->WaitFresh(l, worker.streams);
    worker.stage->Drain();
    size_t entries = 0;
    for (size_t d = 0; d < devices; ++d) {
      const std::string row = devices == 1 ? "" : " " + std::to_string(d);
      for (int l = 0; l < kLayers; ++l) {
        const std::string name = "layer" + std::to_string(l);
        for (int i = 0; i < kIterations; ++i) {
          const Trace::Event to_host =
              TheEvent(trace, "copy to host", name, "copy to host" + row, i);
          const Trace::Event values =
              TheEvent(trace, "copy to device", name, "copy to device" + row, i);
          const Trace::Event next =
              TheEvent(trace, "copy to device", name, "copy to device" + row, i + 1);
          EXPECT_GE(to_host.end - to_host.begin, (layers[l].factors() ? 2 : 1) * kCopy);
          EXPECT_GE(next.end - next.begin, kCopy);
          EXPECT_GE(to_host.begin, values.end) << "nobody had computed yet";
          EXPECT_GE(next.begin, to_host.end) << "what was still read was overwritten";
          EXPECT_GE(to_host.begin - called, kCompute);
          entries += 2;
        }
        ++entries;  // the last values
        if (devices == 1) continue;
        if (!layers[l].factors()) {
          TheEvent(trace, "reduce-scatter", name, "copy to host" + row, 0);
          entries += kIterations;
        }
        TheEvent(trace, "all-gather", name, "copy to device" + row, 0);
        entries += kIterations + 1;
      }
    }
    EXPECT_EQ(trace.events().size(), entries);
  }
}

TEST(DeviceStaging, WaitsForAnotherPlansValues) {
  const std::vector<TestLayer> layers = {{.floats = 10}};
  TestNetwork network(1, layers, [](int) { return microseconds(0); });
  Worker worker(network.worker(0), layers, 1, {});
  worker.Iterate(0, {0});
  worker.stage->WaitFresh(0, worker.streams);
  worker.exchange.Forget(0);
  worker.stage->PlanChanged();
  std::thread wire([&] {
    std::this_thread::sleep_for(milliseconds(20));
    worker.exchange.Publish(0, 7);
  });
  worker.stage->WaitFresh(0, worker.streams);
  worker.stage->Drain();
  EXPECT_EQ(worker.replicas[0]->values(0), Floats(10, 7));
  wire.join();
}

TEST(DeviceStaging, WhatTheExchangeThrowsComesThrough) {
  const std::vector<TestLayer> layers = {{.floats = 10}};
  TestNetwork network(2, layers, [](int) { return microseconds(0); });  // worker 1 never comes
  Worker worker(network.worker(0), layers, 1, {});
  worker.Iterate(0, {0});
  network.worker(0).Fail("worker 1 is gone");
  EXPECT_THROW(worker.stage->WaitFresh(0, worker.streams), PeerLost);
}

}  // namespace
}  // namespace poseidon
