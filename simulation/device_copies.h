// DeviceCopies: a stream of copies each way between a simulated worker's devices and its host, as
// planner/cost/device_copy_cost.h prices them: a layer's gradient passes one before the host has
// it, what a lane has brought up to date of a bucket the other before the devices do.
//
// A value that is part of an actor, to which the two timers belong.
#pragma once

#include <cstdint>
#include <vector>

#include "core/time.h"
#include "planner/cost/cluster_model.h"
#include "proto/model.pb.h"
#include "simulation/copy_stream.h"
#include "transport/actor.h"

namespace poseidon {

class DeviceCopies {
 public:
  // A layer's gradient, or a lane's part of a bucket.
  struct Part {
    int index = 0;  // of the layer, or of the bucket
    int64_t iteration = 0;
    Time happened{};  // when it was there to be copied
  };

  DeviceCopies(TimerId to_host, TimerId to_devices) : to_host_(to_host), to_devices_(to_devices) {}

  // From now on copies take what they take under the plan. Nothing is under way.
  void SetPlan(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster);
  // True if there is nothing to wait for: then it is there. Else it comes out of the function below
  // when the timer of its direction expires.
  bool ToHost(const Part& gradient, Outbox& outbox) {
    return to_host_.Pass(gradient, to_host_time_[gradient.index], outbox);
  }
  bool ToDevices(const Part& bucket, int lane, Outbox& outbox) {
    return to_devices_.Pass(bucket, to_devices_time_[bucket.index][lane], outbox);
  }
  // What is under way counts for nothing.
  void Abandon(Outbox& outbox) {
    to_host_.Abandon(outbox);
    to_devices_.Abandon(outbox);
  }
  Part NextOnHost(Outbox& outbox) { return to_host_.Next(outbox); }
  Part NextOnDevices(Outbox& outbox) { return to_devices_.Next(outbox); }

 private:
  CopyStream<Part> to_host_;
  CopyStream<Part> to_devices_;
  std::vector<Duration> to_host_time_;                  // by layer
  std::vector<std::vector<Duration>> to_devices_time_;  // by bucket and lane
};

}  // namespace poseidon
