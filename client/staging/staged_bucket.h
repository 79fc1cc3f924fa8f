// StagedBucket: what DeviceStaging knows of a bucket's way between the devices and the host. A
// value; the training thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/staging/arrival_thread.h"
#include "client/staging/device_replica.h"
#include "client/staging/layer_exchange.h"
#include "device/device.h"

namespace poseidon {

struct StagedBucket {
  // A replica each.
  using Events = std::vector<std::unique_ptr<DeviceEvent>>;

  // The values that are needed first are those of the exchange's iteration.
  StagedBucket(const LayerExchange& exchange, const LayerExchange::Bucket& planned,
               const std::vector<DeviceReplica>& replicas);

  std::string name;
  std::vector<int> layers;  // ascending
  // What profilers call its way to the host, and back.
  std::string gradient_name;
  std::string values_name;

  // In the program's streams; of several replicas whose gradients stay, when they are added up.
  Events gradient_ready;
  Events on_host;  // the gradient
  Events reduced;  // what has come of all workers' gradients, on the devices
  Events values_there;
  // Around the first replica's wait for values of the iteration `awaited`.
  std::unique_ptr<DeviceEvent> wait_begins;
  std::unique_ptr<DeviceEvent> wait_ends;
  int64_t awaited = -1;
  bool booking = false;  // how long it took has not been told

  int64_t wanted;        // the iteration whose values the devices need next
  int64_t moved;         // whose values are there, or on their way
  bool there = true;     // those are known to be there
  size_t ready = 0;      // layers whose gradients are there, of the present iteration
  bool leaving = false;  // the gradient is on its way to the host
  bool stays = false;    // it has not left the devices
  std::shared_ptr<const void> gradient_owner;
  std::shared_ptr<const void> values_owner;
  // Of layers that devices update: they have the plan's first values; they have made others of them
  // that the host has not.
  bool loaded = false;
  bool host_is_behind = false;
};

// When the replicas come to the events, each to its own.
std::vector<ArrivalThread::Moment> MomentsOf(const std::vector<DeviceReplica>& replicas,
                                             const StagedBucket::Events& events);

}  // namespace poseidon
