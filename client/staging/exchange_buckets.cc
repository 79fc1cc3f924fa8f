#include "client/staging/exchange_buckets.h"

#include <cstdint>

#include "client/sync/dense_update.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// ResNet-50 with TF32 on an H100: an iteration takes 21.1 ms with each layer alone, 19.9 with
// buckets of 4 MiB, and 20.0 with such of 32 (docs/measurements/gpu.md).
constexpr int64_t kStayingBytes = 4 << 20;

int64_t BytesOf(const ModelSpec& model, const BucketPlan& bucket) {
  int64_t floats = 0;
  for (int l = 0; l < bucket.layer_count(); ++l) {
    floats += FloatCount(model.layers(bucket.first_layer() + l));
  }
  return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::vector<LayerExchange::Bucket> ExchangeBuckets(const SyncContext& context) {
  std::vector<LayerExchange::Bucket> buckets;
  const ModelSpec& model = context.plan.model();
  bool stays = false;  // the last one
  int64_t bytes = 0;   // that it has
  for (int b = 0; b < context.plan.plan().buckets_size(); ++b) {
    const BucketPlan& planned = context.bucket(b);
    const bool stays_too = IsAlone(context, planned.first_layer());
    const int64_t more = BytesOf(model, planned);
    if (stays && stays_too && bytes + more <= kStayingBytes) {
      LayerExchange::Bucket& last = buckets.back();
      last.layers += planned.layer_count();
      last.name = model.layers(last.first_layer).name() + ".." +
                  model.layers(last.first_layer + last.layers - 1).name();
      bytes += more;
      continue;
    }
    buckets.push_back({planned.first_layer(), planned.layer_count(), planned.name()});
    stays = stays_too;
    bytes = more;
  }
  return buckets;
}

}  // namespace poseidon
