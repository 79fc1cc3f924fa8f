// What an iteration costs the devices and the training thread: each event, copy and wait that is
// put in a stream, and each look at a device. On a GPU each takes the training thread some
// microseconds, and a call-back stops the stream that it is in.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "client/staging/device_staging.h"
#include "tests/unit/client/device_staging_testing.h"
#include "tests/unit/device/counting_device.h"

namespace poseidon {
namespace {

constexpr int kLayers = 6;
constexpr int64_t kBuckets = 4;  // of one layer, three, one and one
constexpr size_t kFloats = 48;   // of a layer, so that layers follow each other in memory

// Layers in one block, as on a worker's device.
class Training {
 public:
  Training(int workers, bool updates)
      : layers_(kLayers, {.floats = kFloats}),
        network_(workers, layers_, [](int) { return std::chrono::microseconds(0); }),
        values_(kLayers * kFloats),
        gradient_(kLayers * kFloats),
        state_(kLayers * kFloats),
        expected_(kLayers * kFloats, 1.0F),
        compute_(device_.MakeStream()) {
    std::iota(gradient_.begin(), gradient_.end(), 0.0F);
    network_.devices_update_dense = updates;
    network_.buckets = {1, 3};
    DeviceReplica replica;
    replica.device = &device_;
    replica.parameter_update = &update_;
    for (int l = 0; l < kLayers; ++l) {
      const auto layer = [&](Floats& floats) {
        return std::span(floats).subspan(static_cast<size_t>(l) * kFloats, kFloats);
      };
      replica.layers.push_back({{layer(values_)}, {layer(gradient_)}, {}, {}});
    }
    stage_.emplace(network_.worker(0), std::vector{replica});
    // The others have no devices.
    for (int rank = 1; rank < workers; ++rank) others_.push_back(&network_.worker(rank));
  }

  // From one forward pass to the next, whose values are there when it asks for them.
  void Iterate() {
    for (int l = 0; l < kLayers; ++l) stage_->WaitFresh(l, {&compute_, 1});
    for (int l = kLayers - 1; l >= 0; --l) {
      stage_->GradientReady(l, {&compute_, 1});
      for (TestExchange* other : others_) {
        std::ranges::fill(other->buffers(l).gradient.dense, 0.0F);
        other->GradientReady(l);
      }
    }
    ++iterations_;
    stage_->EndIteration();
    network_.worker(0).EndIteration();
    for (TestExchange* other : others_) other->EndIteration();
  }
  void AwaitValues() {
    for (int l = 0; l < kLayers; ++l) {
      while (!network_.worker(0).IsFresh(l, network_.worker(0).iteration())) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    stage_->Drain();
  }

  // Of the iterations until now, where values are.
  void CheckValues() {
    for (int l = 0; l < kLayers; ++l) {
      const auto of = [&](Floats& floats) {
        return std::span(floats).subspan(static_cast<size_t>(l) * kFloats, kFloats);
      };
      Floats sum(kFloats);
      std::iota(sum.begin(), sum.end(), static_cast<float>(static_cast<size_t>(l) * kFloats));
      const std::optional<DenseUpdate> update = network_.worker(0).dense_update(l);
      if (update) {
        UpdateSegmentwise(*update->rule, iterations_ - 1, update->segments, sum, 1, of(expected_),
                          of(state_));
      } else {
        for (size_t i = 0; i < kFloats; ++i) of(expected_)[i] -= kStep * sum[i];
      }
    }
    EXPECT_EQ(values_, expected_);
  }

  CountingDevice& device() { return device_; }
  DeviceStream compute() const { return compute_; }

 private:
  std::vector<TestLayer> layers_;
  TestNetwork network_;
  std::vector<TestExchange*> others_;
  Floats values_;
  Floats gradient_;
  Floats state_;     // of what values are to be
  Floats expected_;  // likewise
  int64_t iterations_ = 0;
  CountingDevice device_{HostDevice::Options{}};
  HostParameterUpdate update_{device_};
  DeviceStream compute_;
  std::optional<DeviceStaging> stage_;
};

struct Expected {
  const char* name = "";
  int workers = 1;
  bool updates = false;
  StreamCounts to_host{};
  StreamCounts to_device{};
  StreamCounts update{};
};

class StagingOperations : public testing::TestWithParam<Expected> {};

// A bucket is one event behind the backward pass, one wait of the forward pass, and, each way that
// it goes, one copy between a wait and an event; however many layers it has. What the layers'
// values are updated by is the program's.
TEST_P(StagingOperations, OfAnIterationAreThoseOfItsBuckets) {
  const Expected& expected = GetParam();
  Training training(expected.workers, expected.updates);
  CountingDevice& device = training.device();
  training.Iterate();  // the first values, which come from the host
  training.AwaitValues();
  training.CheckValues();
  constexpr int kIterations = 3;
  for (int i = 0; i < kIterations; ++i) {
    device.Reset();
    const auto begin = std::chrono::steady_clock::now();
    training.Iterate();
    const auto ticks = (std::chrono::steady_clock::now() - begin) / std::chrono::milliseconds(100);
    EXPECT_EQ(device.OfThisThread().waits, 0);
    // Whether values are there, of each bucket that is waited for; and at times whether the device
    // has failed.
    EXPECT_LE(device.OfThisThread().queries, kBuckets + 1 + ticks);
    training.AwaitValues();  // an event at the end of each stream but the program's
    const auto expect = [&](const StreamCounts& of_buckets, DeviceStream stream) {
      const StreamCounts got = device.OfStream(stream);
      EXPECT_EQ(got.copies, of_buckets.copies);
      EXPECT_EQ(got.events, of_buckets.events + 1);
      EXPECT_EQ(got.waits, of_buckets.waits);
      EXPECT_EQ(got.call_backs, 0);
    };
    {
      SCOPED_TRACE("to the host");
      expect(expected.to_host, device.copy_stream(CopyDirection::kToHost));
    }
    {
      SCOPED_TRACE("to the device");
      expect(expected.to_device, device.copy_stream(CopyDirection::kToDevice));
    }
    {
      SCOPED_TRACE("updates");
      expect(expected.update, device.update_stream());
    }
    EXPECT_EQ(device.OfStream(training.compute()),
              (StreamCounts{.events = kBuckets, .waits = kBuckets}));
    training.CheckValues();
  }
}

constexpr StreamCounts kCopied{.copies = kBuckets, .events = kBuckets};
constexpr StreamCounts kSent{.copies = kBuckets, .events = kBuckets, .waits = kBuckets};
constexpr StreamCounts kUpdated{.events = kBuckets, .waits = kBuckets};

INSTANTIATE_TEST_SUITE_P(
    Places, StagingOperations,
    testing::Values(
        Expected{.name = "HostUpdates", .workers = 2, .to_host = kSent, .to_device = kCopied},
        // The gradient comes back and the device updates.
        Expected{.name = "DeviceUpdates",
                 .workers = 2,
                 .updates = true,
                 .to_host = kSent,
                 .to_device = kCopied,
                 .update = kUpdated},
        // Nothing crosses the bus.
        Expected{.name = "Alone", .workers = 1, .updates = true, .update = kUpdated}),
    [](const auto& drawn) { return drawn.param.name; });

}  // namespace
}  // namespace poseidon
