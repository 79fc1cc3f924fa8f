#include "client/bucket_progress.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <utility>

#include "proto/bucket.h"

namespace poseidon {

int PartsOfBucket(const Plan& plan, int bucket) {
  if (UsesFactors(plan.buckets(bucket).scheme())) return 1;
  std::set<int> lanes;
  for (const Chunk& chunk : plan.buckets(bucket).chunks()) lanes.insert(chunk.lane());
  return static_cast<int>(lanes.size());
}

BucketProgress::BucketProgress(const Plan& plan, bool waits_for_all)
    : no_overlap_(plan.no_overlap()),
      wait_for_all_(plan.wait_for_all() && waits_for_all),
      start_(plan.start_iteration()),
      bucket_of_layer_(BucketOfLayer(plan)) {
  for (int b = 0; b < plan.buckets_size(); ++b) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.parts = PartsOfBucket(plan, b);
    bucket.layers = plan.buckets(b).layer_count();
    bucket.fresh = start_ - 1;
  }
}

std::vector<int> BucketProgress::LayerReady(int layer, Time now) {
  const int index = bucket_of_layer_[layer];
  Bucket& bucket = buckets_[index];
  if (++bucket.layers_ready < bucket.layers) return {};
  bucket.layers_ready = 0;
  bucket.ready = now;
  if (!no_overlap_) return {index};
  held_back_.push_back(index);
  if (held_back_.size() < buckets_.size()) return {};
  for (const int held : held_back_) buckets_[held].ready = now;
  return std::exchange(held_back_, {});
}

bool BucketProgress::Report(int index, int64_t iteration, Time happened) {
  Bucket& bucket = buckets_[index];
  CHECK_EQ(iteration, bucket.fresh + 1) << "a lane ran ahead of the training loop";
  if (++bucket.reported < bucket.parts) return false;
  bucket.reported = 0;
  ++bucket.fresh;
  // The first iteration became fresh by the initial values, the next by the first exchange.
  if (bucket.fresh > start_ + 1) {
    bucket.exchange += happened - bucket.ready;
    bucket.last[(bucket.fresh - 1) % 2] = {bucket.ready, happened};
    ++bucket.exchanges;
  }
  return true;
}

bool BucketProgress::IsFresh(int layer, int64_t iteration) const {
  const auto fresh = [iteration](const Bucket& bucket) { return bucket.fresh >= iteration; };
  if (wait_for_all_) return std::all_of(buckets_.begin(), buckets_.end(), fresh);
  return fresh(buckets_[bucket_of_layer_[layer]]);
}

std::optional<BucketProgress::Exchange> BucketProgress::FindExchange(int index,
                                                                     int64_t iteration) const {
  const Bucket& bucket = buckets_[index];
  const bool is_kept = iteration + 1 <= bucket.fresh && iteration + 2 >= bucket.fresh;
  // The exchange of the plan's first iteration is not kept, as connections are made in it.
  if (!is_kept || iteration <= start_) return std::nullopt;
  return bucket.last[iteration % 2];
}

void BucketProgress::AddTimes(wire::WorkerReport& report) const {
  int next = report.buckets_size() - static_cast<int>(buckets_.size());
  CHECK_GE(next, 0);
  for (const Bucket& bucket : buckets_) {
    wire::BucketTraffic* traffic = report.mutable_buckets(next++);
    traffic->set_exchange_seconds(ToSeconds(bucket.exchange));
    traffic->set_exchanges(bucket.exchanges);
  }
}

}  // namespace poseidon
