// The way of batches to a device: what is computed reads the batch that it was given, however
// slowly copies are made, and nobody overwrites what is still read.
#include "worker/engine/batch_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include "core/error.h"
#include "device/host_device.h"
#include "worker/engine/device_of_engine.h"

namespace poseidon {
namespace {

using std::chrono::microseconds;

constexpr size_t kFloats = 1000;

// A device whose copies take as long as `takes` says.
struct SlowDevice {
  explicit SlowDevice(std::function<microseconds()> takes)
      : device(
            {.name = "slow device",
             .before_copy = [takes = std::move(takes)](
                                CopyDirection, size_t) { std::this_thread::sleep_for(takes()); }}),
        stream(device.MakeStream()),
        of_engine(device, DeviceOfEngine::Computes::kInStream, stream, std::nullopt) {}

  HostDevice device;
  DeviceStream stream;
  DeviceOfEngine of_engine;
};

TEST(BatchMemory, WithoutADeviceBothAreTheSameMemory) {
  BatchMemory memory(nullptr, {3, 5});
  for (int slot = 0; slot < BatchMemory::kSlots; ++slot) {
    EXPECT_EQ(memory.host(slot, 1).size(), 5U);
    EXPECT_EQ(memory.host(slot, 1).data(), memory.values(slot, 1).data());
    memory.AwaitHost(slot);
    memory.Send(slot);
    memory.Use(slot);
  }
  EXPECT_NE(memory.host(0, 0).data(), memory.host(1, 0).data());
}

// A host that makes batches far ahead of a device that computes slowly. Batches are dropped, too,
// and sent from the slot that is computed with.
TEST(BatchMemory, WhatIsComputedReadsTheBatchThatItWasGiven) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::mt19937 of_copies(seed + 1000);  // the copying thread's
    SlowDevice slow([&of_copies] { return microseconds(of_copies() % 300); });
    std::atomic<int> wrong = 0;
    int slot = 0;
    {
      BatchMemory memory(&slow.of_engine, {kFloats, 1});
      for (int batch = 1; batch <= 30; ++batch) {
        if (random() % 4 != 0) slot = 1 - slot;
        for (const bool dropped : {true, false}) {
          if (dropped && random() % 4 != 0) continue;
          memory.AwaitHost(slot);
          const auto value = static_cast<float>(dropped ? -batch : batch);
          std::ranges::fill(memory.host(slot, 0), value);
          memory.host(slot, 1)[0] = value;
          memory.Send(slot);
        }
        memory.Use(slot);
        const auto takes = microseconds(random() % 300);
        slow.device.Run(slow.stream,
                        [=, &wrong, all = memory.values(slot, 0), one = memory.values(slot, 1)] {
                          for (const int moment : {0, 1}) {
                            for (const float value : all)
                              wrong += value == static_cast<float>(batch) ? 0 : 1;
                            wrong += one[0] == static_cast<float>(batch) ? 0 : 1;
                            if (moment == 0) std::this_thread::sleep_for(takes);
                          }
                        });
      }
      slow.device.Synchronize(slow.stream);
    }
    EXPECT_EQ(wrong, 0);
  }
}

TEST(BatchMemory, ACopyThatFailsIsToldToWhoeverWaitsForIt) {
  HostDevice device({.name = "broken device", .before_copy = [](CopyDirection, size_t) {
                       throw std::runtime_error("the bus is gone");
                     }});
  DeviceOfEngine of_engine(device, DeviceOfEngine::Computes::kOnThread, nullptr, std::nullopt);
  BatchMemory memory(&of_engine, {kFloats});
  memory.Send(0);
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      attempt == 0 ? memory.Use(0) : memory.AwaitHost(0);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "broken device has failed: the bus is gone");
    }
  }
}

}  // namespace
}  // namespace poseidon
