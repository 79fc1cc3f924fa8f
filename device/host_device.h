// HostDevice: a Device whose memory is the host's and whose streams are threads. It stands for a
// GPU wherever there is none: its copies are asynchronous, its streams have no order but what
// events give them, and it fails as a GPU does. For replicas on a CPU, and tests.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/device.h"

namespace poseidon {

class HostDevice : public Device {
 public:
  struct Options {
    std::string name = "host device";
    // Called by the stream's thread before each copy, if set: may sleep, for as long as the copy
    // should take, and what it throws makes the device fail.
    std::function<void(CopyDirection, size_t bytes)> before_copy = {};
    // Called before memory is found, if set: may throw Error, as where there is none left.
    std::function<void(size_t bytes)> before_allocate = {};
    // Called when such memory is free again, if set, by whoever frees it.
    std::function<void(size_t bytes)> after_free = {};
  };

  explicit HostDevice(Options options);
  // Waits until all streams have done their work, which a failed device leaves undone.
  ~HostDevice() override;
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  // A stream for the program's own work, as long as the device lives.
  DeviceStream MakeStream();
  // Does `work` in the stream; what it throws makes the device fail.
  void Run(DeviceStream stream, std::function<void()> work);
  // Until all that is in the stream is done, or the device has failed.
  void Synchronize(DeviceStream stream);

  const std::string& name() const override { return options_.name; }
  DeviceStream copy_stream(CopyDirection direction) const override;
  DeviceStream packing_stream() const override { return packing_; }
  DeviceStream update_stream() const override { return updates_; }
  DeviceStream batch_stream() const override { return batches_; }
  std::unique_ptr<DeviceEvent> MakeEvent() override;
  std::unique_ptr<DeviceEvent> MakeTimedEvent() override { return MakeEvent(); }
  void Record(DeviceEvent& event, DeviceStream stream) override;
  void Wait(DeviceStream stream, const DeviceEvent& event) override;
  void Await(const DeviceEvent& event) override;
  bool HasCome(const DeviceEvent& event) override;
  std::optional<Duration> Elapsed(const DeviceEvent& begin, const DeviceEvent& end) override;
  void Copy(DeviceStream stream, void* to, const void* from, size_t bytes) override;
  void Notify(DeviceStream stream, std::function<void()> function) override;
  DeviceMemory AllocatePinned(size_t bytes) override;
  DeviceMemory Allocate(size_t bytes) override;
  void Check() const override;

 private:
  class Stream;
  // A stream of its own; before_copy is told `direction` of the copies in it.
  DeviceStream AddStream(CopyDirection direction);
  // A stream is about to do a task: false if the device has failed. Then it has done it.
  bool Begin();
  void End();
  void Fail(const std::string& reason);

  Options options_;
  mutable std::mutex mutex_;  // of what follows
  mutable std::condition_variable all_ended_;
  std::string failure_;  // empty: none
  int under_way_ = 0;    // tasks of all streams
  std::vector<std::unique_ptr<Stream>> streams_;
  DeviceStream to_host_;
  DeviceStream to_device_;
  DeviceStream packing_;
  DeviceStream updates_;
  DeviceStream batches_;
};

}  // namespace poseidon
