#include "client/sync/syncer.h"

#include <algorithm>

#include "client/sync/adam_push_syncer.h"
#include "client/sync/all_reduce_syncer.h"
#include "client/sync/factor_broadcast_syncer.h"
#include "client/sync/parameter_server_syncer.h"
#include "core/arithmetic/keeping_update.h"
#include "proto/plan_members.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

wire::PeerTraffic& EntryOf(const NodeId& peer, wire::WorkerReport& report) {
  for (wire::PeerTraffic& entry : *report.mutable_peers()) {
    if (entry.role() == static_cast<uint32_t>(peer.role) && entry.rank() == peer.rank) {
      return entry;
    }
  }
  wire::PeerTraffic& entry = *report.add_peers();
  entry.set_role(static_cast<uint32_t>(peer.role));
  entry.set_rank(peer.rank);
  return entry;
}

}  // namespace

SyncContext::SyncContext(wire::PlanAndModel plan_and_model,
                         std::shared_ptr<const ModelMemory> model_memory)
    : SyncContext(std::make_shared<const wire::PlanAndModel>(std::move(plan_and_model)),
                  std::move(model_memory)) {}

SyncContext::SyncContext(std::shared_ptr<const wire::PlanAndModel> plan_and_model,
                         std::shared_ptr<const ModelMemory> model_memory)
    : shared_plan(std::move(plan_and_model)),
      plan(*shared_plan),
      rule(ToUpdateRule(plan.model().update_rule())),
      memory(std::move(model_memory)),
      traffic(plan.plan().buckets_size()) {}

Envelope SyncContext::MakeFrame(MessageKind kind, const NodeId& to, int lane, int bucket, int chunk,
                                int64_t iteration, Payload body) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = {to, kFirstDataLane + lane};
  envelope.epoch = epoch;
  envelope.iteration = iteration;
  envelope.bucket = static_cast<uint32_t>(bucket);
  envelope.chunk = static_cast<uint32_t>(chunk);
  envelope.priority = PriorityOf(plan.plan(), bucket, iteration);
  envelope.body = std::move(body);
  return envelope;
}

NodeId SyncContext::Worker(int at) const { return {Role::kWorker, RankOfWorker(plan.plan(), at)}; }

NodeId SyncContext::Server(int at) const { return {Role::kServer, RankOfServer(plan.plan(), at)}; }

int SyncContext::PlaceOf(const NodeId& worker) const {
  return worker.role == Role::kWorker ? PlaceOfWorker(plan.plan(), worker.rank) : -1;
}

void SyncContext::CountPeers() {
  for (int server = 0; server < plan.plan().servers(); ++server) peers[Server(server)];
  for (int other = 0; other < workers(); ++other) {
    if (other != place) peers[Worker(other)];
  }
}

void SyncContext::CountSent(int bucket_index, const Envelope& envelope) {
  const auto bytes = static_cast<int64_t>(envelope.body.size());
  traffic[bucket_index].bytes_sent += bytes;
  const auto peer = peers.find(envelope.to.node);
  if (peer != peers.end()) peer->second.bytes_sent += bytes;
}

void SyncContext::CountReceived(int bucket_index, const Envelope& envelope) {
  const auto bytes = static_cast<int64_t>(envelope.body.size());
  traffic[bucket_index].bytes_received += bytes;
  const auto peer = peers.find(envelope.from.node);
  if (peer != peers.end()) peer->second.bytes_received += bytes;
}

bool SyncContext::publishes_start() const {
  const auto& holders = plan.plan().holders();
  return holders.empty() ? place == 0 : std::ranges::find(holders, place) != holders.end();
}

bool SyncContext::DevicesUpdateDense(int index) const {
  return devices_update && !rule.deferred && bucket(index).update_at_workers() &&
         !UsesFactors(bucket(index).scheme());
}

void SyncContext::Keep(int bucket_index, int64_t iteration, int64_t offset, int64_t size) const {
  if (kept != nullptr) kept->BeginUpdate(bucket_index, offset, size, iteration);
}

Payload SyncContext::ViewOf(std::span<const float> buffer, int64_t offset, int64_t size) const {
  if (phantom) return Payload::Phantom(size * sizeof(float));
  return Payload::View(buffer.subspan(offset, size), memory);
}

void SyncContext::UpdateRange(int bucket_index, int64_t iteration, int64_t offset,
                              std::span<const float> gradient, float gradient_scale) const {
  if (phantom || DevicesUpdateDense(bucket_index)) return;
  const auto size = static_cast<int64_t>(gradient.size());
  const BucketMemory& buffers = memory->bucket(bucket_index);
  const int64_t state = OptimizerStatePerParameter(rule);
  const std::span<float> values = buffers.values.subspan(offset, size);
  const std::span<float> after =
      buffers.optimizer_state[(iteration + 1) % 2].subspan(offset * state, size * state);
  const auto segments = UpdateSegments(plan.model(), bucket(bucket_index), offset, size);
  if (kept == nullptr) {
    return UpdateSegmentwise(rule, iteration, segments, gradient, gradient_scale, values, after);
  }
  const std::span<float> before = buffers.before[iteration % 2].subspan(offset, size);
  const std::span<const float> state_before =
      buffers.optimizer_state[iteration % 2].subspan(offset * state, size * state);
  int64_t begin = 0;
  for (const UpdateSegment& segment : segments) {
    const int64_t floats = segment.size;
    UpdateKeeping({rule, iteration, segment.multipliers, gradient_scale},
                  {.gradient_sum = gradient.subspan(begin, floats),
                   .parameters = values.subspan(begin, floats),
                   .before = before.subspan(begin, floats),
                   .state_before = state_before.subspan(begin * state, floats * state),
                   .state = after.subspan(begin * state, floats * state)});
    begin += floats;
  }
}

SlicedArithmetic SyncContext::SlicedUpdateOf(int bucket_index, int64_t iteration, int64_t offset,
                                             int64_t size, std::span<const float> gradient,
                                             float gradient_scale) const {
  if (phantom) return SlicedUpdate(size, {});
  return SlicedUpdate(size, [=, this](int64_t begin, int64_t floats) {
    UpdateRange(bucket_index, iteration, offset + begin, gradient.subspan(begin, floats),
                gradient_scale);
  });
}

int FloatsKeptByServers(const SyncContext& context, const BucketPlan& bucket) {
  if (!UsesServers(bucket.scheme())) return 0;
  if (!bucket.update_at_workers()) return OptimizerStatePerParameter(context.rule);
  return NeedsErrorFeedback(bucket.codec()) ? 1 : 0;
}

void AddTraffic(const SyncContext& context, wire::WorkerReport& report) {
  for (size_t bucket = 0; bucket < context.traffic.size(); ++bucket) {
    const TrafficCounter& counter = context.traffic[bucket];
    wire::BucketTraffic* traffic = report.add_buckets();
    traffic->set_name(context.bucket(static_cast<int>(bucket)).name());
    traffic->set_plan(context.plan.plan().number());
    traffic->set_bytes_sent(counter.bytes_sent);
    traffic->set_bytes_received(counter.bytes_received);
  }
  for (const auto& [peer, counter] : context.peers) {
    wire::PeerTraffic& entry = EntryOf(peer, report);
    entry.set_bytes_sent(entry.bytes_sent() + counter.bytes_sent);
    entry.set_bytes_received(entry.bytes_received() + counter.bytes_received);
  }
  report.set_dropped_frames(report.dropped_frames() + context.dropped_frames);
}

std::vector<int> ChunksOnLane(const BucketPlan& bucket, int lane) {
  std::vector<int> chunks;
  for (int c = 0; c < bucket.chunks_size(); ++c) {
    if (bucket.chunks(c).lane() == lane) chunks.push_back(c);
  }
  return chunks;
}

bool HasPart(const Plan& plan, int bucket, int lane) {
  const BucketPlan& planned = plan.buckets(bucket);
  if (UsesFactors(planned.scheme())) return planned.lane() == lane;
  return !ChunksOnLane(planned, lane).empty();
}

std::unique_ptr<Syncer> MakeSyncer(std::shared_ptr<SyncContext> context, int bucket, int lane) {
  const Scheme scheme = context->bucket(bucket).scheme();
  if (scheme == SFB) return std::make_unique<FactorBroadcastSyncer>(std::move(context), bucket);
  if (scheme == ADAM) return std::make_unique<AdamPushSyncer>(std::move(context), bucket);
  if (IsAllReduce(scheme)) {
    return std::make_unique<AllReduceSyncer>(std::move(context), bucket, lane);
  }
  return std::make_unique<ParameterServerSyncer>(std::move(context), bucket, lane);
}

}  // namespace poseidon
