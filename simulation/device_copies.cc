#include "simulation/device_copies.h"

#include "planner/cost/device_copy_cost.h"

namespace poseidon {

void DeviceCopies::SetPlan(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster) {
  to_host_time_.clear();
  to_devices_time_.assign(plan.buckets_size(), std::vector<Duration>(plan.lanes()));
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const BucketPlan& bucket = plan.buckets(b);
    for (int l = 0; l < bucket.layer_count(); ++l) {
      const LayerSpec& layer = model.layers(bucket.first_layer() + l);
      to_host_time_.push_back(Seconds(SecondsToHost(bucket, layer, model, cluster)));
    }
    std::vector<int64_t> floats(plan.lanes());
    for (const Chunk& chunk : bucket.chunks()) floats[chunk.lane()] += chunk.size();
    for (int lane = 0; lane < plan.lanes(); ++lane) {
      to_devices_time_[b][lane] = Seconds(SecondsToDevices(bucket, floats[lane], model, cluster));
    }
  }
}

}  // namespace poseidon
