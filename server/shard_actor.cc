#include "server/shard_actor.h"

#include <algorithm>

#include "proto/bucket.h"
#include "proto/plan_members.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

constexpr TimerId kStallScan = 1;
// A stall is noticed at most this share of the deadline late.
constexpr int kScansPerDeadline = 10;

FactorLayer::Shape ShapeOf(const wire::PlanAndModel& plan, const BucketPlan& bucket) {
  const InnerProductSpec& product = plan.model().layers(bucket.first_layer()).inner_product();
  return {.workers = plan.plan().workers(),
          .outputs = product.outputs(),
          .inputs = product.inputs(),
          .rows = product.rows(),
          .floats = FloatCount(bucket),
          .start_iteration = plan.plan().start_iteration()};
}

}  // namespace

ShardActor::ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options)
    : options_(options),
      workers_(plan.plan().workers()),
      iterations_(plan.model().iterations()),
      copies_needed_(plan.plan().staleness() != 0),
      fifo_(plan.plan().fifo()),
      rule_(ToUpdateRule(plan.model().update_rule())) {
  for (int worker = 0; worker < workers_; ++worker) {
    worker_ranks_.push_back(RankOfWorker(plan.plan(), worker));
  }
  for (int b = 0; b < plan.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(b);
    buckets_.push_back({bucket.name(), bucket.layer_count() > 1});
  }
  const std::vector<Place> places = Places(plan);
  int64_t floats = 0;
  for (const Place& place : places) floats += place.memory_floats;
  memory_ = std::make_shared<ZeroedMemory>(options.phantom ? 0 : floats);
  for (const Place& place : places) {
    const int bucket = static_cast<int>(place.key.bucket);
    const std::span<float> memory = memory_->Take(options.phantom ? 0 : place.memory_floats);
    if (plan.plan().buckets(bucket).scheme() == PS) {
      MakePair(plan, place.key, memory);
    } else {
      MakeFactorLayer(plan, bucket, memory);
    }
  }
  int64_t largest = 0;
  for (const auto& [key, pair] : pairs_) largest = std::max(largest, pair.size());
  // One more, which a pair borrows for a moment only.
  const size_t sums = pairs_.size() * KvPair::OpenIterations(plan.plan().staleness()) + 1;
  pool_ = std::make_unique<AccumulatorPool>(options.phantom ? 0 : sums, largest);
  copies_ = std::make_unique<CopyPool>(largest * sizeof(float));
}

ShardActor::~ShardActor() = default;

std::vector<ShardActor::Place> ShardActor::Places(const wire::PlanAndModel& plan) const {
  std::vector<Place> places;
  for (uint32_t b = 0; b < static_cast<uint32_t>(plan.plan().buckets_size()); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(static_cast<int>(b));
    if (!UsesServers(bucket.scheme())) continue;
    for (uint32_t c = 0; c < static_cast<uint32_t>(bucket.chunks_size()); ++c) {
      const Chunk& chunk = bucket.chunks(static_cast<int>(c));
      if (chunk.server() != options_.server || chunk.lane() != options_.lane) continue;
      if (bucket.scheme() == ADAM) {
        places.push_back({{b, 0}, FactorLayer::MemoryFloats(ShapeOf(plan, bucket), rule_)});
        break;  // all its chunks are here
      }
      places.push_back(
          {{b, c}, KvPair::MemoryFloats(PairOptions(plan.plan(), bucket), rule_, chunk.size())});
    }
  }
  return places;
}

KvPair::Options ShardActor::PairOptions(const Plan& plan, const BucketPlan& bucket) const {
  return {.workers = workers_,
          .deterministic = plan.deterministic(),
          .staleness = plan.staleness(),
          .iterations = iterations_,
          .update_at_workers = bucket.update_at_workers(),
          .codec = CodecOf(plan, bucket),
          .workers_hold_values = bucket.update_at_workers() && !plan.holders().empty(),
          .start_iteration = plan.start_iteration()};
}

void ShardActor::MakePair(const wire::PlanAndModel& plan, const Key& key, std::span<float> memory) {
  const BucketPlan& bucket = plan.plan().buckets(static_cast<int>(key.bucket));
  const Chunk& chunk = bucket.chunks(static_cast<int>(key.chunk));
  pairs_.try_emplace(key, PairOptions(plan.plan(), bucket), chunk.size(),
                     UpdateSegments(plan.model(), bucket, chunk.offset(), chunk.size()), memory);
  if (!IsTorchType(rule_.type)) return;
  agreements_.try_emplace(key, LabelOf(key.bucket), GroupsOf(plan.model(), bucket));
}

std::string ShardActor::LabelOf(uint32_t bucket) const {
  const BucketInfo& info = buckets_[bucket];
  return (info.several_layers ? "layers " : "layer ") + info.name;
}

void ShardActor::MakeFactorLayer(const wire::PlanAndModel& plan, int bucket,
                                 std::span<float> memory) {
  const BucketPlan& spec = plan.plan().buckets(bucket);
  factor_layers_.try_emplace(static_cast<uint32_t>(bucket), ShapeOf(plan, spec),
                             std::vector<Chunk>(spec.chunks().begin(), spec.chunks().end()),
                             UpdateSegments(plan.model(), spec, 0, FloatCount(spec)), memory);
}

int64_t ShardActor::floats() const {
  int64_t floats = 0;
  for (const auto& [key, pair] : pairs_) floats += pair.size();
  for (const auto& [bucket, layer] : factor_layers_) floats += layer.size();
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
  if (envelope.epoch != options_.epoch) return dropped_.AddStale();
  const int sender = PlaceOf(envelope.from.node);
  if (sender < 0) {
    return dropped_.AddInvalid(envelope, "from a node that is no worker of this job");
  }
  const auto pair = pairs_.find({envelope.bucket, envelope.chunk});
  if (pair != pairs_.end()) {
    return OnPairFrame(envelope, sender, pair->first, pair->second, outbox);
  }
  const auto layer = factor_layers_.find(envelope.bucket);
  if (layer != factor_layers_.end()) {
    return OnFactorLayerFrame(envelope, sender, layer->second, outbox);
  }
  dropped_.AddInvalid(envelope, "for a KV pair that is not here");
}

int ShardActor::PlaceOf(const NodeId& worker) const {
  if (worker.role != Role::kWorker) return -1;
  const auto found = std::ranges::lower_bound(worker_ranks_, worker.rank);
  if (found == worker_ranks_.end() || *found != worker.rank) return -1;
  return static_cast<int>(found - worker_ranks_.begin());
}

void ShardActor::OnPairFrame(const Envelope& envelope, int sender, const Key& key, KvPair& pair,
                             Outbox& outbox) {
  if (sender == 0 && OnStateFrame(envelope, key, pair, outbox)) return;
  if (envelope.kind != MessageKind::kGradient)
    return dropped_.AddInvalid(envelope, "of a wrong kind");
  const auto groups = GroupsFor(envelope, key, pair);
  if (!groups) return dropped_.AddInvalid(envelope, "without the numbers that its update needs");
  const GatherResult reaction =
      pair.Add(sender, envelope.iteration, envelope.body, outbox.now, rule_, *pool_, *groups);
  if (!Accept(envelope, reaction.status, outbox) || reaction.answer.empty()) return;
  const Payload body = PairAnswer(pair);
  for (const int worker : reaction.answer) {
    Send(pair.answers_sums() ? MessageKind::kGradientSum : MessageKind::kValues, key, worker,
         pair.clock(worker), body, outbox);
  }
}

std::optional<std::vector<ParameterGroup>> ShardActor::GroupsFor(const Envelope& envelope,
                                                                 const Key& key,
                                                                 const KvPair& pair) {
  const auto agreement = agreements_.find(key);
  if (agreement == agreements_.end()) return std::vector<ParameterGroup>{};
  auto groups = UnpackSettings(envelope.settings.bytes(), rule_.type, agreement->second.groups());
  if (groups && envelope.iteration == pair.iteration()) {
    agreement->second.Check(envelope.iteration, envelope.from.node.rank, *groups);
  }
  return groups;
}

void ShardActor::OnFactorLayerFrame(const Envelope& envelope, int sender, FactorLayer& layer,
                                    Outbox& outbox) {
  if (sender == 0 && OnStateFrame(envelope, layer, outbox)) return;
  if (envelope.kind != MessageKind::kFactors)
    return dropped_.AddInvalid(envelope, "of a wrong kind");
  const FrameStatus status =
      layer.Add(sender, envelope.iteration, envelope.chunk, envelope.body, outbox.now);
  if (!Accept(envelope, status, outbox) || !layer.complete()) return;
  const auto answer = [this, &layer, bucket = envelope.bucket](Outbox& later) {
    layer.Finish();
    for (uint32_t chunk = 0; chunk < layer.chunks().size(); ++chunk) {
      SendChunk(layer, {bucket, chunk}, later);
    }
  };
  outbox.work.push_back({.priority = Priority(envelope.bucket, envelope.iteration),
                         .parts = layer.RebuildAndUpdate(rule_),
                         .done = answer});
}

bool ShardActor::OnStateFrame(const Envelope& envelope, const Key& key, KvPair& pair,
                              Outbox& outbox) {
  if (envelope.kind == MessageKind::kFetchOptimizerState) {
    if (!pair.initialized() || !IsSettled(envelope.iteration, pair.iteration())) {
      dropped_.AddInvalid(envelope, "while the state changes");
    } else {
      SendState(key, pair.state(), KvPair::StateFloats(pair.options(), rule_, pair.size()),
                pair.iteration(), outbox);
    }
    return true;
  }
  const bool values = envelope.kind == MessageKind::kInitialValues;
  if (!values && envelope.kind != MessageKind::kInitialOptimizerState) return false;
  if (values ? !pair.Initialize(envelope.body) : !pair.InitializeState(envelope.body, rule_)) {
    dropped_.AddStale();
  } else if (pair.initialized()) {
    const Payload body = PairAnswer(pair);
    for (int worker = 0; worker < workers_; ++worker) {
      Send(MessageKind::kValues, key, worker, pair.clock(worker), body, outbox);
    }
  }
  return true;
}

bool ShardActor::OnStateFrame(const Envelope& envelope, FactorLayer& layer, Outbox& outbox) {
  const Key key{envelope.bucket, envelope.chunk};
  if (envelope.kind == MessageKind::kFetchOptimizerState) {
    if (!layer.initialized() || !IsSettled(envelope.iteration, layer.iteration()) ||
        key.chunk >= layer.chunks().size()) {
      dropped_.AddInvalid(envelope, "while the state changes");
    } else {
      SendState(key, layer.state(key.chunk),
                layer.chunks()[key.chunk].size() * OptimizerStatePerParameter(rule_),
                layer.iteration(), outbox);
    }
    return true;
  }
  const bool values = envelope.kind == MessageKind::kInitialValues;
  if (!values && envelope.kind != MessageKind::kInitialOptimizerState) return false;
  if (values ? !layer.Initialize(key.chunk, envelope.body)
             : !layer.InitializeState(key.chunk, envelope.body, rule_)) {
    dropped_.AddStale();
  } else if (layer.initialized(key.chunk)) {
    SendChunk(layer, key, outbox);
  }
  return true;
}

void ShardActor::SendState(const Key& key, std::span<const float> state, int64_t floats,
                           int64_t iteration, Outbox& outbox) {
  Payload body = Payload::Phantom(floats * sizeof(float));
  if (!options_.phantom) {
    // Without a copy where it can't change before worker 0 has it.
    body =
        copies_needed_
            ? Payload::FromString({reinterpret_cast<const char*>(state.data()), state.size_bytes()})
            : Payload::View(state, memory_);
  }
  Send(MessageKind::kOptimizerState, key, 0, iteration, body, outbox);
}

bool ShardActor::IsSettled(int64_t asked, int64_t applied) const {
  return copies_needed_ || asked == applied;
}

bool ShardActor::Accept(const Envelope& envelope, FrameStatus status, const Outbox& outbox) {
  if (status == FrameStatus::kDuplicate) dropped_.AddStale();
  if (status == FrameStatus::kInvalid) {
    dropped_.AddInvalid(envelope, "of an iteration or with a body that can't be");
  }
  if (status != FrameStatus::kAccepted) return false;
  if (options_.iteration != nullptr) *options_.iteration = envelope.iteration;
  if (options_.trace != nullptr) {
    options_.trace->Add({"gradient arrived", buckets_[envelope.bucket].name,
                         "from " + envelope.from.node.ToString(), envelope.iteration, outbox.now,
                         outbox.now, static_cast<int64_t>(envelope.body.size())});
  }
  return true;
}

Payload ShardActor::PairAnswer(const KvPair& pair) {
  if (options_.phantom) return Payload::Phantom(pair.answer_size());
  if (copies_needed_) return copies_->Copy(pair.answer());
  return Payload::View(pair.answer(), memory_);
}

void ShardActor::SendChunk(const FactorLayer& layer, const Key& key, Outbox& outbox) {
  const Payload body = options_.phantom
                           ? Payload::Phantom(layer.chunks()[key.chunk].size() * sizeof(float))
                           : Payload::View(layer.values(key.chunk), memory_);
  for (int worker = 0; worker < workers_; ++worker) {
    Send(MessageKind::kValues, key, worker, layer.iteration(), body, outbox);
  }
}

void ShardActor::Send(MessageKind kind, const Key& key, int worker, int64_t iteration,
                      const Payload& body, Outbox& outbox) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = {{Role::kWorker, worker_ranks_[worker]}, kFirstDataLane + options_.lane};
  envelope.epoch = options_.epoch;
  envelope.iteration = iteration;
  envelope.bucket = key.bucket;
  envelope.chunk = key.chunk;
  // Values for an iteration come of the exchange before.
  envelope.priority = Priority(key.bucket, iteration - 1);
  envelope.body = body;
  outbox.Send(std::move(envelope));
}

int ShardActor::Priority(uint32_t bucket, int64_t exchange) const {
  return PriorityOf(fifo_, static_cast<int>(buckets_.size()), static_cast<int>(bucket), exchange);
}

void ShardActor::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  // The oldest stall: a worker that hangs soon leaves other pairs waiting, too.
  Time oldest = outbox.now - options_.stall_deadline;
  std::optional<wire::Stalled> stalled;
  const auto consider = [&](uint32_t bucket, const auto& owner) {
    const std::optional<Time> since = WaitingSince(owner);
    if (!since || *since > oldest) return;
    oldest = *since;
    stalled = StallOf(bucket, owner);
  };
  for (const auto& [key, pair] : pairs_) consider(key.bucket, pair);
  for (const auto& [bucket, layer] : factor_layers_) consider(bucket, layer);
  if (!stalled) return outbox.SetTimer(kStallScan, options_.stall_deadline / kScansPerDeadline);
  // Once is enough, the scheduler ends the job.
  outbox.Send(MakeEnvelope(MessageKind::kLaneStalled, Here(kControlLane), *stalled));
}

template <typename Owner>
std::optional<Time> ShardActor::WaitingSince(const Owner& owner) const {
  if (!owner.initialized()) return started_;
  if (owner.open()) return owner.open_since();
  return std::nullopt;
}

template <typename Owner>
wire::Stalled ShardActor::StallOf(uint32_t bucket, const Owner& owner) const {
  wire::Stalled stalled;
  const std::string label = LabelOf(bucket);
  stalled.set_waiting_for(owner.initialized() ? "the gradient of " + label + ", iteration " +
                                                    std::to_string(owner.iteration()) + ","
                                              : "the initial values of " + label);
  for (const int worker : owner.initialized() ? owner.missing() : std::vector<int>{0}) {
    wire::Node* node = stalled.add_missing();
    node->set_role(static_cast<uint32_t>(Role::kWorker));
    node->set_rank(worker_ranks_[worker]);
  }
  return stalled;
}

}  // namespace poseidon
