// CountingDevice: a HostDevice that counts what it is asked for, by stream, and what a thread waits
// for, so that a test can hold what an iteration costs against what it should.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "device/host_device.h"

namespace poseidon {

// Of one stream. `events`: recordings; `waits`: for events of other streams.
struct StreamCounts {
  int64_t copies = 0;
  int64_t events = 0;
  int64_t waits = 0;
  int64_t call_backs = 0;

  friend bool operator==(const StreamCounts&, const StreamCounts&) = default;
};

// Of one thread. `waits` block it until the device is there; `queries` do not.
struct ThreadCounts {
  int64_t waits = 0;
  int64_t queries = 0;
};

class CountingDevice : public HostDevice {
 public:
  using HostDevice::HostDevice;

  void Record(DeviceEvent& event, DeviceStream stream) override {
    Count([&] { ++streams_[stream].events; });
    HostDevice::Record(event, stream);
  }
  void Wait(DeviceStream stream, const DeviceEvent& event) override {
    Count([&] { ++streams_[stream].waits; });
    HostDevice::Wait(stream, event);
  }
  void Copy(DeviceStream stream, void* to, const void* from, size_t bytes) override {
    Count([&] { ++streams_[stream].copies; });
    HostDevice::Copy(stream, to, from, bytes);
  }
  void Notify(DeviceStream stream, std::function<void()> function) override {
    Count([&] { ++streams_[stream].call_backs; });
    HostDevice::Notify(stream, std::move(function));
  }
  void Await(const DeviceEvent& event) override {
    Count([&] { ++threads_[std::this_thread::get_id()].waits; });
    HostDevice::Await(event);
  }
  bool HasCome(const DeviceEvent& event) override {
    Count([&] { ++threads_[std::this_thread::get_id()].queries; });
    return HostDevice::HasCome(event);
  }
  std::optional<Duration> Elapsed(const DeviceEvent& begin, const DeviceEvent& end) override {
    Count([&] { ++threads_[std::this_thread::get_id()].queries; });
    return HostDevice::Elapsed(begin, end);
  }
  void Check() const override {
    Count([&] { ++threads_[std::this_thread::get_id()].queries; });
    HostDevice::Check();
  }

  // Since the last Reset.
  StreamCounts OfStream(DeviceStream stream) const {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    return found == streams_.end() ? StreamCounts() : found->second;
  }
  ThreadCounts OfThisThread() const {
    const std::lock_guard lock(mutex_);
    const auto found = threads_.find(std::this_thread::get_id());
    return found == threads_.end() ? ThreadCounts() : found->second;
  }
  void Reset() {
    const std::lock_guard lock(mutex_);
    streams_.clear();
    threads_.clear();
  }

 private:
  template <typename Add>
  void Count(const Add& add) const {
    const std::lock_guard lock(mutex_);
    add();
  }

  mutable std::mutex mutex_;  // of what follows
  mutable std::map<DeviceStream, StreamCounts> streams_;
  mutable std::map<std::thread::id, ThreadCounts> threads_;
};

}  // namespace poseidon
