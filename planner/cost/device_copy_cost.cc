#include "planner/cost/device_copy_cost.h"

#include "planner/cost/bucket_costs.h"
#include "proto/bucket.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// Of a worker.
double BytesOfFactors(const LayerSpec& layer) {
  const InnerProductSpec& product = layer.inner_product();
  return static_cast<double>(product.rows() * (product.outputs() + product.inputs())) *
         sizeof(float);
}

double CopySeconds(double bytes, const ClusterModel& cluster) {
  return bytes / cluster.devices / cluster.copy_rate;
}

double ShareSeconds(double bytes, const ClusterModel& cluster) {
  const double others = cluster.devices - 1;
  return others / cluster.devices * bytes / cluster.device_rate;
}

// From all workers' factors, and the update: each device has all of such a layer.
double DeviceRebuildSeconds(const LayerSpec& layer, const ClusterModel& cluster) {
  const double bytes = static_cast<double>(FloatCount(layer)) * sizeof(float);
  return MultiplySeconds(layer.inner_product(), cluster.workers, cluster.flops) +
         bytes / cluster.device_update_rate;
}

// Whether a gradient never leaves the devices: nobody else has a part in it.
bool StaysOnDevices(const BucketPlan& bucket, const ModelSpec& model, const ClusterModel& cluster) {
  return cluster.workers == 1 && IsAllReduce(bucket.scheme()) && bucket.codec() == FP32 &&
         DevicesUpdate(bucket, model, cluster);
}

}  // namespace

double SecondsToHost(const BucketPlan& bucket, const LayerSpec& layer, const ModelSpec& model,
                     const ClusterModel& cluster) {
  if (UsesFactors(bucket.scheme())) return CopySeconds(BytesOfFactors(layer), cluster);
  const double bytes = static_cast<double>(FloatCount(layer)) * sizeof(float);
  const double copy = StaysOnDevices(bucket, model, cluster) ? 0 : CopySeconds(bytes, cluster);
  return ShareSeconds(bytes, cluster) + copy;
}

double SecondsToDevices(const BucketPlan& bucket, int64_t floats, const ModelSpec& model,
                        const ClusterModel& cluster) {
  const bool update = DevicesUpdate(bucket, model, cluster);
  if (bucket.scheme() == SFB && !cluster.host_rebuilds) {
    const LayerSpec& layer = model.layers(bucket.first_layer());
    const double factors = BytesOfFactors(layer) * cluster.workers;
    return CopySeconds(factors, cluster) + ShareSeconds(factors, cluster) +
           (update ? DeviceRebuildSeconds(layer, cluster) : 0);
  }
  if (bucket.scheme() == SFB) floats = FloatCount(bucket);  // on one lane, in no chunks
  const double bytes = static_cast<double>(floats) * sizeof(float);
  const double copy = StaysOnDevices(bucket, model, cluster) ? 0 : CopySeconds(bytes, cluster);
  return copy + (update ? bytes / cluster.devices / cluster.device_update_rate : 0) +
         ShareSeconds(bytes, cluster);
}

}  // namespace poseidon
