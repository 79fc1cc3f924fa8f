// ArrivalThread: waits for moments of devices, one after the other, and wakes an exchange when they
// have come: so what comes to the host is heard of at once, the streams have no call-backs in them,
// and the training thread asks no device.
//
//   arrivals.Expect(bucket, {{&device, event.get()}});   // recorded behind a copy
//   ... the exchange is woken ...
//   arrivals.Take(came);                                 // has the bucket
//
// Thread-safe. A thread of its own, which is why a device that fails is heard of, too; nothing is
// waited for any more then.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/staging/layer_exchange.h"
#include "core/error.h"
#include "device/device.h"

namespace poseidon {

class ArrivalThread {
 public:
  // As it was last recorded; not to be recorded again before it is taken.
  struct Moment {
    Device* device = nullptr;
    const DeviceEvent* event = nullptr;
  };

  // All that is pointed to outlives this.
  explicit ArrivalThread(LayerExchange& exchange);
  // Returns when the moment that is waited for has come, or its device has failed. Those behind it
  // are not waited for.
  ~ArrivalThread();
  ArrivalThread(const ArrivalThread&) = delete;
  ArrivalThread& operator=(const ArrivalThread&) = delete;

  // The `number` has come when all of the moments have.
  void Expect(int number, std::vector<Moment> moments);
  // Puts into `numbers` those that have come since the last call, in the order of Expect. Throws
  // Error if a device has failed.
  void Take(std::vector<int>& numbers);

 private:
  struct Expected {
    int number = 0;
    std::vector<Moment> moments;
  };

  void Loop();
  // The next one to wait for; none at the end.
  std::optional<Expected> Next();
  static void Await(const Expected& expected);

  LayerExchange& exchange_;
  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool ends_ = false;
  std::deque<Expected> expected_;
  std::vector<int> came_;
  std::optional<Error> failure_;
  std::thread thread_;
};

}  // namespace poseidon
