#include "server/shard_actor.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "core/error.h"
#include "proto/model_size.h"
#include "proto/update_rule.h"

namespace poseidon {
namespace {

constexpr TimerId kStallScan = 1;
// A stall is noticed at most this share of the deadline late.
constexpr int kScansPerDeadline = 10;

// The parts of a chunk that belong to different blobs of its layer.
std::vector<KvPair::Segment> SegmentsOf(const LayerSpec& layer, const Chunk& chunk) {
  std::vector<KvPair::Segment> segments;
  int64_t blob_begin = 0;
  for (const BlobSpec& blob : layer.blobs()) {
    const int64_t count = FloatCount(blob);
    const int64_t begin = std::max(blob_begin, chunk.offset());
    const int64_t end = std::min(blob_begin + count, chunk.offset() + chunk.size());
    if (begin < end) segments.push_back({end - begin, {blob.lr_mult(), blob.decay_mult()}});
    blob_begin += count;
  }
  return segments;
}

}  // namespace

// Values and optimiser state of all the lane's pairs.
struct ShardActor::Memory {
  struct Free {
    void operator()(float* memory) const { std::free(memory); }
  };
  using Floats = std::unique_ptr<float, Free>;

  // calloc: pages of zeros that the kernel backs when they are touched.
  static Floats Make(int64_t count) {
    Floats floats(static_cast<float*>(std::calloc(std::max<int64_t>(count, 1), sizeof(float))));
    if (floats == nullptr) throw std::bad_alloc();
    return floats;
  }

  Floats values;
  Floats history;
};

ShardActor::ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options)
    : options_(options),
      workers_(plan.plan().workers()),
      rule_(ToUpdateRule(plan.model().update_rule())),
      memory_(std::make_shared<Memory>()) {
  struct Place {
    Key key;
    const Chunk* chunk;
  };
  std::vector<Place> places;
  int64_t total = 0;
  int64_t largest = 0;
  for (int l = 0; l < plan.plan().layers_size(); ++l) {
    const LayerPlan& layer = plan.plan().layers(l);
    layer_names_.push_back(layer.name());
    if (layer.scheme() != PS) continue;
    for (int c = 0; c < layer.chunks_size(); ++c) {
      const Chunk& chunk = layer.chunks(c);
      if (chunk.server() != options.server || chunk.lane() != options.lane) continue;
      places.push_back({{static_cast<uint32_t>(l), static_cast<uint32_t>(c)}, &chunk});
      total += chunk.size();
      largest = std::max(largest, chunk.size());
    }
  }
  const int64_t state = StatePerParameter(rule_);
  if (!options.phantom) {
    memory_->values = Memory::Make(total);
    memory_->history = Memory::Make(total * state);
  }
  const KvPair::Options pair_options{workers_, plan.plan().deterministic()};
  int64_t offset = 0;
  for (const Place& place : places) {
    const size_t size = place.chunk->size();
    std::span<float> values;
    std::span<float> history;
    if (!options.phantom) {
      values = {memory_->values.get() + offset, size};
      history = {memory_->history.get() + offset * state, size * state};
    }
    pairs_.try_emplace(
        place.key, pair_options, place.chunk->size(),
        SegmentsOf(plan.model().layers(static_cast<int>(place.key.bucket)), *place.chunk), values,
        history);
    offset += place.chunk->size();
  }
  pool_ = std::make_unique<AccumulatorPool>(options.phantom ? 0 : pairs_.size(), largest);
}

ShardActor::~ShardActor() = default;

int64_t ShardActor::floats() const {
  int64_t floats = 0;
  for (const auto& [key, pair] : pairs_) floats += pair.size();
  return floats;
}

void ShardActor::OnStart(Outbox& outbox) {
  outbox.SetTimer(kStallScan, options_.stall_deadline / kScansPerDeadline);
}

void ShardActor::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kTraining) {
    started_ = outbox.now;
    return;
  }
  const NodeId& worker = envelope.from.node;
  if (envelope.epoch != options_.epoch) return Drop(envelope, "of another epoch", false);
  if (worker.role != Role::kWorker || worker.rank < 0 || worker.rank >= workers_) {
    return Drop(envelope, "from a node that is no worker of this job", true);
  }
  const auto found = pairs_.find({envelope.bucket, envelope.chunk});
  if (found == pairs_.end()) return Drop(envelope, "for a KV pair that is not here", true);
  const Key& key = found->first;
  KvPair& pair = found->second;
  if (envelope.kind == MessageKind::kInitialValues && worker.rank == 0) {
    if (!pair.Initialize(envelope.body)) return Drop(envelope, "initial values", false);
    return SendValues(key, pair, outbox);
  }
  if (envelope.kind != MessageKind::kGradient) return Drop(envelope, "of a wrong kind", true);
  const KvPair::Outcome outcome =
      pair.Add(worker.rank, envelope.iteration, envelope.body, outbox.now, *pool_);
  if (outcome == KvPair::Outcome::kOld) return Drop(envelope, "old", false);
  if (outcome == KvPair::Outcome::kForeign) {
    return Drop(envelope, "of an iteration or a size that can't be", true);
  }
  if (options_.trace != nullptr) {
    options_.trace->Add({"gradient arrived", layer_names_[envelope.bucket],
                         "from " + worker.ToString(), envelope.iteration, outbox.now, outbox.now});
  }
  if (outcome == KvPair::Outcome::kComplete) {
    pair.Update(rule_, *pool_);
    SendValues(key, pair, outbox);
  }
}

void ShardActor::SendValues(const Key& key, const KvPair& pair, Outbox& outbox) {
  const Payload body = options_.phantom ? Payload::Phantom(pair.size() * sizeof(float))
                                        // Sent without a copy: the values next change when every
                                        // worker has answered them with a gradient.
                                        : Payload::View(pair.values(), memory_);
  for (int worker = 0; worker < workers_; ++worker) {
    Envelope envelope;
    envelope.kind = MessageKind::kValues;
    envelope.to = {{Role::kWorker, worker}, kFirstDataLane + options_.lane};
    envelope.epoch = options_.epoch;
    envelope.iteration = pair.iteration();
    envelope.bucket = key.bucket;
    envelope.chunk = key.chunk;
    envelope.priority = static_cast<int>(key.bucket);
    envelope.body = body;
    outbox.Send(std::move(envelope));
  }
}

void ShardActor::Drop(const Envelope& envelope, const char* why, bool suspicious) {
  ++dropped_frames_;
  if (suspicious && logged_.insert(envelope.from.node).second) {
    LOG(WARNING) << "dropped a frame " << why << ": " << KindName(envelope.kind) << " from "
                 << envelope.from.ToString() << ", layer " << envelope.bucket << ", chunk "
                 << envelope.chunk << ", iteration " << envelope.iteration << ", "
                 << envelope.body.size() << " bytes (later ones of this peer are only counted)";
  }
}

void ShardActor::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  // The oldest stall: a worker that hangs soon leaves other pairs waiting, too.
  Time oldest = outbox.now - options_.stall_deadline;
  std::optional<wire::Stalled> stalled;
  for (const auto& [key, pair] : pairs_) {
    const std::optional<Time> since = WaitingSince(pair);
    if (!since || *since > oldest) continue;
    oldest = *since;
    stalled = StallOf(key, pair);
  }
  if (!stalled) return outbox.SetTimer(kStallScan, options_.stall_deadline / kScansPerDeadline);
  // Once is enough, the scheduler ends the job.
  outbox.Send(MakeEnvelope(MessageKind::kLaneStalled, Here(kControlLane), *stalled));
}

std::optional<Time> ShardActor::WaitingSince(const KvPair& pair) const {
  if (!pair.initialized()) return started_;
  if (pair.open()) return pair.opened();
  return std::nullopt;
}

wire::Stalled ShardActor::StallOf(const Key& key, const KvPair& pair) const {
  wire::Stalled stalled;
  const std::string layer = "layer " + layer_names_[key.bucket];
  stalled.set_waiting_for(pair.initialized() ? "the gradient of " + layer + ", iteration " +
                                                   std::to_string(pair.iteration()) + ","
                                             : "the initial values of " + layer);
  for (const int worker : pair.initialized() ? pair.missing() : std::vector<int>{0}) {
    wire::Node* node = stalled.add_missing();
    node->set_role(static_cast<uint32_t>(Role::kWorker));
    node->set_rank(worker);
  }
  return stalled;
}

}  // namespace poseidon
