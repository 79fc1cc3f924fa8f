#include "simulation/processing_costs.h"

#include <algorithm>

#include "collectives/all_reduce_steps.h"
#include "planner/cost/bucket_costs.h"
#include "proto/bucket.h"
#include "proto/plan_members.h"

namespace poseidon {

ProcessingCosts::ProcessingCosts(const ClusterModel& cluster)
    : cluster_(cluster), message_cost_(Seconds(cluster.message_cost)) {}

void ProcessingCosts::SetPlan(const wire::PlanAndModel& plan_and_model) {
  const Plan& plan = plan_ = plan_and_model.plan();
  // A worker may be an iteration ahead even under BSP.
  window_ = std::max(plan.staleness(), 0) + 2;
  buckets_.clear();
  for (const BucketPlan& planned : plan.buckets()) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.on_devices = DevicesUpdate(planned, plan_and_model.model(), cluster_);
    for (const Chunk& chunk : planned.chunks()) {
      bucket.add.push_back(Seconds(AddSeconds(chunk.size(), cluster_)));
      bucket.update.push_back(Seconds(UpdateSeconds(chunk.size(), cluster_)));
    }
    if (planned.scheme() == PS) bucket.arrived.resize(size_t{1} * planned.chunks_size() * window_);
  }
}

Duration ProcessingCosts::Of(const Envelope& envelope) {
  const bool within = envelope.to.node.role == Role::kThisNode;
  const Duration handling = within ? Duration::zero() : message_cost_;
  return handling + OfExchange(envelope);
}

Duration ProcessingCosts::Of(const ArithmeticAmount& amount) const {
  return Seconds(amount.updated * UpdateSeconds(1, cluster_) +
                 amount.operations / cluster_.LaneFlops());
}

Duration ProcessingCosts::OfExchange(const Envelope& envelope) {
  // What is of a plan before, and will be dropped, may be of a chunk or a worker that is no more.
  if (envelope.bucket >= buckets_.size()) return {};
  Bucket& bucket = buckets_[envelope.bucket];
  if (envelope.chunk >= bucket.add.size()) return {};
  switch (envelope.kind) {
    case MessageKind::kGradient:
      return OfGradient(envelope, bucket);
    case MessageKind::kGradientSum:
      return bucket.on_devices ? Duration::zero() : bucket.update[envelope.chunk];
    case MessageKind::kReplica:
      return bucket.update[envelope.chunk];
    case MessageKind::kReduce:
      return OfReduce(envelope);
    case MessageKind::kGradientReady:
      return OfOwnGradient(envelope);
    default:
      return {};
  }
}

Duration ProcessingCosts::OfGradient(const Envelope& envelope, Bucket& bucket) {
  const int chunk = static_cast<int>(envelope.chunk);
  const BucketPlan& plan = plan_.buckets(static_cast<int>(envelope.bucket));
  // Asynchronously each gradient is an update.
  const int awaited = plan_.staleness() < 0 ? 1 : plan_.workers();
  const bool last = IsLast(envelope.iteration, chunk, awaited, bucket);
  return bucket.add[chunk] +
         (last && !plan.update_at_workers() ? bucket.update[chunk] : Duration::zero());
}

Duration ProcessingCosts::OfReduce(const Envelope& envelope) const {
  const int chunk = static_cast<int>(envelope.chunk);
  const BucketPlan& plan = plan_.buckets(static_cast<int>(envelope.bucket));
  const int64_t floats = plan.chunks(chunk).size();
  const int self = PlaceOfWorker(plan_, envelope.to.node.rank);
  const int peer = PlaceOfWorker(plan_, envelope.from.node.rank);
  if (self < 0 || peer < 0) return {};
  const AllReduceSteps steps(plan.scheme(), plan_, chunk, {0, floats}, self, plan_.workers());
  const auto index = steps.Awaiting(peer, static_cast<int>(envelope.step));
  if (!index) return {};
  const Operation operation = steps.At(*index);
  const bool adds = operation.kind == Operation::Kind::kAdd;
  if (!adds && buckets_[envelope.bucket].on_devices) return {};
  return Seconds(adds ? AddSeconds(operation.range.size, cluster_)
                      : GatheredUpdateSeconds(operation.range.size, cluster_));
}

Duration ProcessingCosts::OfOwnGradient(const Envelope& envelope) const {
  const BucketPlan& plan = plan_.buckets(static_cast<int>(envelope.bucket));
  const Bucket& bucket = buckets_[envelope.bucket];
  if (plan_.workers() > 1 || !IsAllReduce(plan.scheme()) || bucket.on_devices) return {};
  Duration sum{};
  for (int c = 0; c < plan.chunks_size(); ++c) {
    if (kFirstDataLane + plan.chunks(c).lane() == envelope.to.lane) sum += bucket.update[c];
  }
  return sum;
}

bool ProcessingCosts::IsLast(int64_t iteration, int chunk, int awaited, Bucket& bucket) const {
  int& arrived = bucket.arrived[int64_t{chunk} * window_ + iteration % window_];
  if (++arrived < awaited) return false;
  arrived = 0;
  return true;
}

}  // namespace poseidon
