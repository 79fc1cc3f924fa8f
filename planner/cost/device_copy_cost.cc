#include "planner/cost/device_copy_cost.h"

#include "proto/bucket.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// Of a worker.
double FactorBytes(const LayerSpec& layer) {
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

}  // namespace

double SecondsToHost(const BucketPlan& bucket, const LayerSpec& layer,
                     const ClusterModel& cluster) {
  if (UsesFactors(bucket.scheme())) return CopySeconds(FactorBytes(layer), cluster);
  const double bytes = static_cast<double>(FloatCount(layer)) * sizeof(float);
  return ShareSeconds(bytes, cluster) + CopySeconds(bytes, cluster);
}

double SecondsToDevices(const BucketPlan& bucket, int64_t floats, const ModelSpec& model,
                        const ClusterModel& cluster) {
  const double bytes = bucket.scheme() == SFB
                           ? FactorBytes(model.layers(bucket.first_layer())) * cluster.workers
                           : static_cast<double>(floats) * sizeof(float);
  return CopySeconds(bytes, cluster) + ShareSeconds(bytes, cluster);
}

}  // namespace poseidon
