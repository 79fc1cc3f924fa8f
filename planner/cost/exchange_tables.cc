#include "planner/cost/exchange_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "collectives/traffic.h"
#include "planner/cost/device_copy_cost.h"
#include "planner/cost/nanoseconds.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

std::vector<LanePart> PartsOf(const BucketPlan& plan) {
  if (UsesFactors(plan.scheme())) return {{plan.lane(), {}}};
  std::map<int, std::vector<int>> by_lane;
  for (int c = 0; c < plan.chunks_size(); ++c) by_lane[plan.chunks(c).lane()].push_back(c);
  std::vector<LanePart> parts;
  for (auto& [lane, chunks] : by_lane) parts.push_back({lane, std::move(chunks)});
  return parts;
}

class Maker {
 public:
  Maker(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster, ReduceShapes& shapes)
      : plan_(plan), model_(model), cluster_(cluster), shapes_(shapes) {}

  BucketTable Make(int b) {
    const BucketPlan& plan = plan_.buckets(b);
    BucketTable bucket;
    bucket.plan = &plan;
    bucket.parts = PartsOf(plan);
    for (int l = 0; l < plan.layer_count(); ++l) {
      const LayerSpec& layer = model_.layers(plan.first_layer() + l);
      bucket.to_host.push_back(Nanoseconds(SecondsToHost(plan, layer, model_, cluster_)));
    }
    bucket.to_devices = Nanoseconds(SecondsToDevices(plan, FloatCount(plan), model_, cluster_));
    bucket.add_time = kNanosecondsPerSecond * AddSeconds(1, cluster_);
    const bool on_devices = DevicesUpdate(plan, model_, cluster_);
    if (!on_devices) {
      bucket.update_time = kNanosecondsPerSecond * GatheredUpdateSeconds(1, cluster_);
      if (plan_.workers() == 1 && IsAllReduce(plan.scheme())) AddUpdates(plan, bucket.parts);
    }
    // Of SFB a u and a v from each worker, its own included.
    bucket.awaited = plan.scheme() == SFB ? 2 * plan_.workers() : plan.chunks_size();
    if (UsesFactors(plan.scheme())) {
      bucket.factors = FactorBytesOf(plan_, plan, model_);
      bucket.factors.u += cluster_.header_bytes;
      bucket.factors.v += cluster_.header_bytes;
    }
    if (plan.scheme() == SFB && !on_devices) bucket.rebuild_time = RebuildTime(plan);
    for (int c = 0; c < plan.chunks_size(); ++c) bucket.chunks.push_back(MakeChunk(plan, c));
    return bucket;
  }

 private:
  int64_t RebuildTime(const BucketPlan& plan) const {
    return Nanoseconds(RebuildSeconds(plan_, plan, model_, cluster_));
  }

  void AddUpdates(const BucketPlan& plan, std::vector<LanePart>& parts) const {
    for (LanePart& part : parts) {
      for (const int c : part.chunks) {
        part.alone_time += Nanoseconds(UpdateSeconds(plan.chunks(c).size(), cluster_));
      }
    }
  }

  ChunkTable MakeChunk(const BucketPlan& plan, int c) {
    ChunkTable chunk;
    chunk.floats = plan.chunks(c).size();
    if (UsesServers(plan.scheme())) {
      chunk.server_machine = cluster_.MachineOfServer(plan.chunks(c).server());
      chunk.up = CodedBytes(plan_, plan, chunk.floats) + cluster_.header_bytes;
      chunk.down = AnswerBytes(plan_, plan, chunk.floats) + cluster_.header_bytes;
      chunk.add_time = Nanoseconds(AddSeconds(chunk.floats, cluster_));
      const int64_t update = Nanoseconds(UpdateSeconds(chunk.floats, cluster_));
      if (!plan.update_at_workers()) {
        chunk.answer_time = update;
      } else if (!DevicesUpdate(plan, model_, cluster_)) {
        chunk.answered_time = update;
      }
      if (plan.scheme() == ADAM) chunk.answer_time = RebuildTime(plan);
    } else if (IsAllReduce(plan.scheme())) {
      chunk.shape = &shapes_.Get(plan_, plan.scheme(), c, chunk.floats);
    }
    return chunk;
  }

  const Plan& plan_;
  const ModelSpec& model_;
  const ClusterModel& cluster_;
  ReduceShapes& shapes_;
};

}  // namespace

std::vector<BucketTable> MakeBucketTables(const Plan& plan, const ModelSpec& model,
                                          const ClusterModel& cluster, ReduceShapes& shapes) {
  Maker maker(plan, model, cluster, shapes);
  std::vector<BucketTable> buckets;
  for (int b = 0; b < plan.buckets_size(); ++b) buckets.push_back(maker.Make(b));
  return buckets;
}

namespace {

bool InRing(const BucketPlan& bucket) {
  return bucket.scheme() == RING || (bucket.scheme() == SFB && bucket.factor_ring());
}

int64_t MessagesOfBucket(const BucketPlan& bucket, const Plan& plan, int64_t simulated) {
  const int64_t workers = plan.workers();
  const int64_t chunks = bucket.chunks_size();
  if (bucket.scheme() == SFB) return 2 * simulated * (workers - 1);
  if (UsesServers(bucket.scheme())) return 2 * workers * chunks;
  return simulated * chunks * AllReduceRounds(bucket.scheme(), plan, plan.workers());
}

int64_t Messages(const Plan& plan, int64_t simulated) {
  int64_t messages = 0;
  for (const BucketPlan& bucket : plan.buckets()) {
    messages += MessagesOfBucket(bucket, plan, simulated);
  }
  return messages;
}

}  // namespace

bool InStep(const BucketPlan& bucket, const Plan& plan) {
  const auto in_step = [](Scheme scheme, int workers) {
    return scheme == RING || std::has_single_bit(static_cast<unsigned>(workers));
  };
  if (bucket.scheme() == SFB) return true;
  if (bucket.scheme() != TORUS)
    return IsAllReduce(bucket.scheme()) && in_step(bucket.scheme(), plan.workers());
  return std::all_of(plan.grid().begin(), plan.grid().end(), [&](const GridDimension& dimension) {
    return in_step(dimension.algorithm(), dimension.size());
  });
}

int64_t MessagesOfAll(const Plan& plan) { return Messages(plan, plan.workers()); }

int Representatives(const Plan& plan, const ClusterModel& cluster) {
  // As many as leave a search enough of them.
  constexpr int64_t kMostOfUnlike = 50000;
  // Some rings have two steady states, of which one worker alone comes to one, maybe not theirs. Of
  // those with few messages all workers cost as little (docs/measurements/random_plans.md).
  constexpr int64_t kMostOfRing = 10000;
  if (!cluster.deviations.empty() && MessagesOfAll(plan) <= kMostOfUnlike) return 0;
  const auto all = [&](const auto& holds) {
    return std::all_of(plan.buckets().begin(), plan.buckets().end(), holds);
  };
  if (all(InRing)) return MessagesOfAll(plan) <= kMostOfRing ? 0 : 1;
  const bool in_step = plan.workers() > kRepresentatives &&
                       all([&](const BucketPlan& bucket) { return InStep(bucket, plan); });
  return in_step && MessagesOfAll(plan) > kMostOfAll ? kRepresentatives : 0;
}

int64_t MessagesPerIteration(const Plan& plan, const ClusterModel& cluster) {
  const int representatives = Representatives(plan, cluster);
  return Messages(plan, representatives == 0 ? plan.workers() : representatives);
}

}  // namespace poseidon
