#include "client/sync/dense_update.h"

namespace poseidon {

std::optional<DenseUpdate> DenseUpdateOf(const SyncContext& context, int layer) {
  const LayerPlace& place = context.memory->place(layer);
  if (!context.DevicesUpdateDense(place.bucket)) return std::nullopt;
  const BucketPlan& bucket = context.bucket(place.bucket);
  const bool reduced = IsAllReduce(bucket.scheme());  // to the mean; servers send the sum
  return DenseUpdate{
      .rule = &context.rule,
      .segments = UpdateSegments(context.plan.model(), bucket, place.offset, place.size),
      .gradient_scale = reduced ? 1.0F : 1.0F / static_cast<float>(context.workers())};
}

bool IsAlone(const SyncContext& context, int layer) {
  const LayerPlace& place = context.memory->place(layer);
  const BucketPlan& bucket = context.bucket(place.bucket);
  return context.DevicesUpdateDense(place.bucket) && IsAllReduce(bucket.scheme()) &&
         context.workers() == 1 && bucket.codec() == FP32;
}

}  // namespace poseidon
