#include "device/host_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "core/steady_now.h"
#include "core/time.h"
#include "device/pinned_pool.h"

namespace poseidon {
namespace {

TEST(HostDevice, DoesAStreamsWorkInOrder) {
  HostDevice device({});
  const DeviceStream stream = device.MakeStream();
  std::vector<int> done;
  for (int i = 0; i < 100; ++i) device.Run(stream, [&done, i] { done.push_back(i); });
  device.Synchronize(stream);
  ASSERT_EQ(done.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[i], i);
}

// Adds to a counter in streams that only events order; without them the sanitizers would see a
// race, and the numbers would be in another order.
TEST(HostDevice, EventsOrderStreams) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    HostDevice one({}), two({});
    std::vector<std::pair<HostDevice*, DeviceStream>> streams;
    for (int i = 0; i < 3; ++i) {
      streams.emplace_back(&one, one.MakeStream());
      streams.emplace_back(&two, two.MakeStream());
    }
    const std::unique_ptr<DeviceEvent> event = one.MakeEvent();  // one, recorded again and again
    std::vector<int> done;
    for (int i = 0; i < 200; ++i) {
      const auto [device, stream] = streams[random.Below(streams.size())];
      device->Wait(stream, *event);
      device->Run(stream, [&done, i] { done.push_back(i); });
      device->Record(*event, stream);
    }
    for (const auto& [device, stream] : streams) device->Synchronize(stream);
    ASSERT_EQ(done.size(), 200U);
    for (int i = 0; i < 200; ++i) ASSERT_EQ(done[i], i);
  }
}

TEST(HostDevice, WaitsForAnEventAsItWasLastRecorded) {
  HostDevice device({});
  const DeviceStream a = device.MakeStream(), b = device.MakeStream();
  const auto event = device.MakeEvent();
  device.Wait(a, *event);  // never recorded: no wait
  device.Synchronize(a);
  std::promise<void> go;
  std::atomic<bool> waited = false;
  device.Run(a, [&] { go.get_future().wait(); });
  device.Record(*event, a);
  device.Wait(b, *event);
  device.Run(b, [&] { waited = true; });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(waited);
  go.set_value();
  device.Synchronize(b);
  EXPECT_TRUE(waited);
}

TEST(HostDevice, AnEventRecordedElsewhereLeavesEarlierWaitsAlone) {
  HostDevice device({});
  const DeviceStream slow = device.MakeStream(), quick = device.MakeStream();
  const DeviceStream waiting = device.MakeStream();
  const auto event = device.MakeEvent();
  std::promise<void> go;
  std::atomic<bool> waited = false;
  device.Run(slow, [&] { go.get_future().wait(); });
  device.Record(*event, slow);
  device.Wait(waiting, *event);
  device.Run(waiting, [&] { waited = true; });
  device.Record(*event, quick);
  device.Synchronize(quick);
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(waited);
  go.set_value();
  device.Synchronize(waiting);
  EXPECT_TRUE(waited);
}

TEST(HostDevice, TellsTheTimeBetweenEventsThatHaveCome) {
  HostDevice device({});
  const DeviceStream stream = device.MakeStream();
  const auto begin = device.MakeTimedEvent(), end = device.MakeTimedEvent();
  for (const int wait_ms : {30, 10}) {  // events are used again
    std::promise<void> go;
    Time began, ended;  // of what runs between the events
    const Time before = SteadyNow();
    device.Record(*begin, stream);
    device.Run(stream, [&] {
      began = SteadyNow();
      go.get_future().wait();
    });
    device.Run(stream, [&, wait_ms] {
      std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
      ended = SteadyNow();
    });
    device.Record(*end, stream);
    EXPECT_FALSE(device.Elapsed(*begin, *end));
    go.set_value();
    device.Synchronize(stream);
    const Time after = SteadyNow();
    const std::optional<Duration> elapsed = device.Elapsed(*begin, *end);
    ASSERT_TRUE(elapsed);
    EXPECT_GE(*elapsed, std::chrono::milliseconds(wait_ms));
    EXPECT_GE(*elapsed, ended - began);
    EXPECT_LE(*elapsed, after - before);
  }
}

TEST(HostDevice, BothCopyStreamsWorkAtOnce) {
  std::promise<void> in_began, out_began;
  HostDevice::Options options;
  // Each direction waits until the other has begun.
  options.before_copy = [&](CopyDirection direction, size_t) {
    const bool in = direction == CopyDirection::kToDevice;
    (in ? in_began : out_began).set_value();
    (in ? out_began : in_began).get_future().wait();
  };
  HostDevice device(options);
  const std::vector<float> from = {1, 2, 3};
  std::vector<float> in(3), out(3);
  const DeviceStream to_device = device.copy_stream(CopyDirection::kToDevice);
  const DeviceStream to_host = device.copy_stream(CopyDirection::kToHost);
  device.Copy(to_device, in.data(), from.data(), 12);
  device.Copy(to_host, out.data(), from.data(), 12);
  device.Synchronize(to_device);
  device.Synchronize(to_host);
  EXPECT_EQ(in, from);
  EXPECT_EQ(out, from);
}

TEST(HostDevice, AFailureStopsItAndThoseThatWaitForIt) {
  HostDevice broken({.name = "gpu 7", .before_copy = [](CopyDirection, size_t) {
                       throw std::runtime_error("no such address");
                     }});
  HostDevice other({});
  const DeviceStream stream = other.MakeStream();
  const auto event = broken.MakeEvent();
  const DeviceStream copies = broken.copy_stream(CopyDirection::kToHost);
  float from = 1, to = 0;
  std::atomic<bool> called = false;
  EXPECT_NO_THROW(broken.Check());
  broken.Copy(copies, &to, &from, sizeof(to));
  broken.Notify(copies, [&] { called = true; });
  broken.Record(*event, copies);
  other.Wait(stream, *event);
  other.Notify(stream, [&] { called = true; });
  broken.Synchronize(copies);
  other.Synchronize(stream);
  EXPECT_FALSE(called);
  EXPECT_EQ(to, 0);
  for (const HostDevice* device : {&broken, &other}) EXPECT_THROW(device->Check(), Error);
  try {
    broken.Check();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "gpu 7 has failed: no such address");
  }
}

// Whoever hears of the failure may free the memory.
TEST(HostDevice, NothingIsUnderWayAnyMoreWhenItSaysThatItHasFailed) {
  std::promise<void> began;
  HostDevice device({.name = "gpu 7", .before_copy = [&](CopyDirection, size_t) {
                       began.set_value();
                       std::this_thread::sleep_for(std::chrono::milliseconds(50));
                     }});
  const DeviceStream copies = device.copy_stream(CopyDirection::kToHost);
  float from = 1, to = 0;
  device.Copy(copies, &to, &from, sizeof(to));
  began.get_future().wait();
  const DeviceStream broken = device.MakeStream();
  device.Run(broken, [] { throw std::runtime_error("no such address"); });
  device.Synchronize(broken);
  EXPECT_THROW(device.Check(), Error);
  EXPECT_EQ(std::exchange(to, 2), 1);
  device.Synchronize(copies);
  EXPECT_EQ(to, 2);
}

TEST(PinnedPool, HasNothingWhereNoBlockIsMade) {
  int made = 0;
  HostDevice device({});
  PinnedPool pool(
      [&](size_t bytes) { return ++made == 2 ? nullptr : device.AllocatePinned(bytes); }, 1 << 14);
  EXPECT_EQ(pool.Allocate(1 << 10).size(), 1U << 10);
  EXPECT_TRUE(pool.Allocate(1 << 13).empty());
  EXPECT_EQ(pool.bytes(), 1U << 14);
  EXPECT_EQ(pool.Allocate(1 << 11).size(), 1U << 11);  // of what is left of the first one
  EXPECT_EQ(pool.Allocate(1 << 13).size(), 1U << 13);
  EXPECT_EQ(made, 3);
}

TEST(PinnedPool, HandsOutZerosThatDoNotOverlap) {
  Random random(1);
  HostDevice device({});
  PinnedPool pool(PinnedFor(device), 1 << 14);
  std::vector<std::span<float>> all;
  size_t floats = 0;
  for (int i = 0; i < 300; ++i) {
    const size_t size = random.Below(random.Chance(0.1) ? 10'000 : 300);
    const std::span<float> buffer = pool.Allocate(static_cast<int64_t>(size));
    ASSERT_EQ(buffer.size(), size);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0U);
    for (float& f : buffer) {
      ASSERT_EQ(f, 0);
      f = static_cast<float>(i + 1);
    }
    floats += size;
    all.push_back(buffer);
  }
  for (int i = 0; i < 300; ++i) {
    for (const float f : all[i]) ASSERT_EQ(f, i + 1);
  }
  EXPECT_GE(pool.bytes(), floats * sizeof(float));
  EXPECT_LT(pool.bytes(), 2 * floats * sizeof(float) + (1 << 14));
}

}  // namespace
}  // namespace poseidon
