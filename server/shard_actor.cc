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

}  // namespace

ShardActor::ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options)
    : ShardActor(plan, options,
                 std::make_shared<ShardState>(
                     plan, ToUpdateRule(plan.model().update_rule()),
                     ShardState::Options{options.server, options.lane, options.phantom})) {}

ShardActor::ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options,
                       std::shared_ptr<ShardState> state)
    : options_(options),
      workers_(plan.plan().workers()),
      copies_needed_(plan.plan().staleness() != 0),
      fifo_(plan.plan().fifo()),
      starts_with_state_(plan.plan().start_iteration() > 0),
      rule_(ToUpdateRule(plan.model().update_rule())),
      state_(std::move(state)),
      replication_(plan.plan(), options.server, options.lane) {
  for (int worker = 0; worker < workers_; ++worker) {
    worker_ranks_.push_back(RankOfWorker(plan.plan(), worker));
  }
  for (int b = 0; b < plan.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(b);
    buckets_.push_back({bucket.name(), bucket.layer_count() > 1});
  }
  MakeAgreements(plan);
  const int64_t largest = state_->largest_pair();
  pool_ = std::make_unique<AccumulatorPool>(options.phantom ? 0 : state_->sums(), largest);
  copies_ = std::make_unique<CopyPool>(largest * sizeof(float));
}

ShardActor::~ShardActor() = default;

void ShardActor::MakeAgreements(const wire::PlanAndModel& plan) {
  if (!IsTorchType(rule_.type)) return;
  for (const auto* pairs : {&state_->pairs(), &state_->pair_backups()}) {
    for (const auto& [key, pair] : *pairs) {
      const BucketPlan& bucket = plan.plan().buckets(static_cast<int>(key.bucket));
      agreements_.try_emplace(key, LabelOf(key.bucket), GroupsOf(plan.model(), bucket));
    }
  }
}

std::string ShardActor::LabelOf(uint32_t bucket) const {
  const BucketInfo& info = buckets_[bucket];
  return (info.several_layers ? "layers " : "layer ") + info.name;
}

int64_t ShardActor::floats() const { return state_->owned_floats(); }

Duration ShardActor::ScanInterval() const { return options_.stall_deadline / kScansPerDeadline; }

Time ShardActor::AwakeNow(const Outbox& outbox) { return clock_.Look(outbox.now, ScanInterval()); }

void ShardActor::OnStart(Outbox& outbox) {
  AwakeNow(outbox);
  outbox.SetTimer(kStallScan, ScanInterval());
}

void ShardActor::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kTraining) {
    if (!started_) PublishStart(outbox);
    started_ = AwakeNow(outbox);
    return;
  }
  if (envelope.epoch != options_.epoch) return dropped_.AddStale();
  if (envelope.from.node.role == Role::kServer) return OnServerFrame(envelope, outbox);
  const int sender = PlaceOf(envelope.from.node);
  if (sender < 0) {
    return dropped_.AddInvalid(envelope, "from a node that is no worker of this job");
  }
  const auto pair = state_->pairs().find({envelope.bucket, envelope.chunk});
  if (pair != state_->pairs().end()) {
    return OnPairFrame(envelope, sender, pair->first, pair->second, outbox);
  }
  const auto layer = state_->factor_layers().find(envelope.bucket);
  if (layer != state_->factor_layers().end()) {
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

void ShardActor::OnPairFrame(const Envelope& envelope, int sender, const ChunkKey& key,
                             KvPair& pair, Outbox& outbox) {
  if (sender == 0 && OnStateFrame(envelope, key, pair, outbox)) return;
  if (envelope.kind != MessageKind::kGradient)
    return dropped_.AddInvalid(envelope, "of a wrong kind");
  const auto groups = GroupsFor(envelope, key, pair);
  if (!groups) return dropped_.AddInvalid(envelope, "without the numbers that its update needs");
  const GatherResult reaction =
      pair.Add(sender, envelope.iteration, envelope.body, AwakeNow(outbox), rule_, *pool_, *groups);
  if (!Accept(envelope, reaction.status, outbox) || reaction.answer.empty()) return;
  if (const Replication::Copy* copy = replication_.Find(key)) {
    return Replicate(key, pair, copy->backup, envelope.settings, outbox);
  }
  const Payload body = PairAnswer(pair);
  for (const int worker : reaction.answer) {
    Send(pair.answers_sums() ? MessageKind::kGradientSum : MessageKind::kValues, key, worker,
         pair.clock(worker), body, outbox);
  }
}

std::optional<std::vector<ParameterGroup>> ShardActor::GroupsFor(const Envelope& envelope,
                                                                 const ChunkKey& key,
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
      layer.Add(sender, envelope.iteration, envelope.chunk, envelope.body, AwakeNow(outbox));
  if (!Accept(envelope, status, outbox)) return;
  if (const Replication::Copy* copy = replication_.Find({envelope.bucket, 0})) {
    Replicate(envelope, sender, layer, copy->backup, outbox);
  }
  if (!layer.complete()) return;
  UpdateLayer(envelope.bucket, layer, outbox, [this](const ChunkKey& key, Outbox& later) {
    // Where the backup was not quicker, its word is the answer's sign.
    if (!replication_.IsAwaited(key)) AnswerAll(key, later);
  });
}

void ShardActor::UpdateLayer(uint32_t bucket, FactorLayer& layer, Outbox& outbox,
                             std::function<void(const ChunkKey&, Outbox&)> answer) {
  const auto done = [&layer, bucket, answer = std::move(answer)](Outbox& later) {
    layer.Finish();
    for (uint32_t chunk = 0; chunk < layer.chunks().size(); ++chunk) {
      answer({bucket, chunk}, later);
    }
  };
  outbox.work.push_back({.priority = Priority(bucket, layer.iteration()),
                         .parts = layer.RebuildAndUpdate(rule_),
                         .done = done});
}

bool ShardActor::OnStateFrame(const Envelope& envelope, const ChunkKey& key, KvPair& pair,
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
    PublishStart(key, outbox);
  }
  return true;
}

bool ShardActor::OnStateFrame(const Envelope& envelope, FactorLayer& layer, Outbox& outbox) {
  const ChunkKey key{envelope.bucket, envelope.chunk};
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
    PublishStart(key, outbox);
  }
  return true;
}

void ShardActor::SendState(const ChunkKey& key, std::span<const float> state, int64_t floats,
                           int64_t iteration, Outbox& outbox) {
  Payload body = Payload::Phantom(floats * sizeof(float));
  if (!options_.phantom) {
    // Without a copy where it can't change before worker 0 has it.
    body =
        copies_needed_
            ? Payload::FromString({reinterpret_cast<const char*>(state.data()), state.size_bytes()})
            : Payload::View(state, state_->memory());
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
  return Payload::View(pair.answer(), state_->memory());
}

void ShardActor::AnswerAll(const ChunkKey& key, Outbox& outbox) {
  const auto pair = state_->pairs().find(key);
  if (pair == state_->pairs().end()) {
    return SendChunk(state_->factor_layers().at(key.bucket), key, outbox);
  }
  const Payload body = PairAnswer(pair->second);
  for (int worker = 0; worker < workers_; ++worker) {
    Send(MessageKind::kValues, key, worker, pair->second.clock(worker), body, outbox);
  }
}

void ShardActor::SendChunk(const FactorLayer& layer, const ChunkKey& key, Outbox& outbox) {
  const Payload body = ViewOf(layer.values(key.chunk), layer.chunks()[key.chunk].size());
  for (int worker = 0; worker < workers_; ++worker) {
    Send(MessageKind::kValues, key, worker, layer.iteration(), body, outbox);
  }
}

Payload ShardActor::ViewOf(std::span<const float> floats, int64_t size) const {
  return options_.phantom ? Payload::Phantom(size * sizeof(float))
                          : Payload::View(floats, state_->memory());
}

void ShardActor::Send(MessageKind kind, const ChunkKey& key, int worker, int64_t iteration,
                      const Payload& body, Outbox& outbox) {
  // Values for an iteration come of the exchange before.
  Envelope envelope =
      MakeFrame(kind, key, {Role::kWorker, worker_ranks_[worker]}, iteration, iteration - 1);
  envelope.body = body;
  outbox.Send(std::move(envelope));
}

Envelope ShardActor::MakeFrame(MessageKind kind, const ChunkKey& key, const NodeId& to,
                               int64_t iteration, int64_t exchange) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = {to, kFirstDataLane + options_.lane};
  envelope.epoch = options_.epoch;
  envelope.iteration = iteration;
  envelope.bucket = key.bucket;
  envelope.chunk = key.chunk;
  envelope.priority = Priority(key.bucket, exchange);
  return envelope;
}

int64_t ShardActor::Priority(uint32_t bucket, int64_t exchange) const {
  return PriorityOf(fifo_, static_cast<int>(buckets_.size()), static_cast<int>(bucket), exchange);
}

void ShardActor::OnTimer(TimerId timer, Outbox& outbox) {
  (void)timer;  // there is only one
  // The oldest stall: a worker that hangs soon leaves other pairs waiting, too.
  Time oldest = AwakeNow(outbox) - options_.stall_deadline;
  std::optional<wire::Stalled> stalled;
  const auto consider = [&](const ChunkKey& key, const auto& owner) {
    const std::optional<Time> since = WaitingSince(owner);
    if (!since || *since > oldest) return;
    oldest = *since;
    stalled = StallOf(key, owner);
  };
  for (const auto& [key, pair] : state_->pairs()) consider(key, pair);
  for (const auto& [bucket, layer] : state_->factor_layers()) consider({bucket, 0}, layer);
  const auto awaited = replication_.oldest();
  if (awaited && awaited->since <= oldest) stalled = StallOf(*awaited);
  outbox.SetTimer(kStallScan, ScanInterval());
  if (!stalled) return;
  // Again and again: the scheduler may have died before it did anything about it.
  outbox.Send(MakeEnvelope(MessageKind::kLaneStalled, Here(kControlLane), *stalled));
}

template <typename Owner>
std::optional<Time> ShardActor::WaitingSince(const Owner& owner) const {
  if (!owner.initialized()) return started_;
  if (owner.open()) return owner.open_since();
  return std::nullopt;
}

template <typename Owner>
wire::Stalled ShardActor::StallOf(const ChunkKey& key, const Owner& owner) const {
  wire::Stalled stalled;
  const std::string label = LabelOf(key.bucket);
  const auto miss = [&stalled](const NodeId& id) {
    wire::Node* node = stalled.add_missing();
    node->set_role(static_cast<uint32_t>(id.role));
    node->set_rank(id.rank);
  };
  if (owner.initialized()) {
    stalled.set_waiting_for("the gradient of " + label + ", iteration " +
                            std::to_string(owner.awaited_iteration()) + ",");
    for (const int worker : owner.missing()) miss({Role::kWorker, worker_ranks_[worker]});
  } else {
    stalled.set_waiting_for("the initial values of " + label);
    const Replication::Copy* copy = replication_.Find(key);
    const bool from_backup = copy != nullptr && replication_.starts_from_servers();
    miss(from_backup ? copy->backup : NodeId{Role::kWorker, worker_ranks_[0]});
  }
  return stalled;
}

wire::Stalled ShardActor::StallOf(const Replication::Awaited& awaited) const {
  wire::Stalled stalled;
  stalled.set_waiting_for("the copy of " + LabelOf(awaited.key.bucket) + " for iteration " +
                          std::to_string(awaited.iteration) + ",");
  const NodeId backup = replication_.Find(awaited.key)->backup;
  wire::Node* node = stalled.add_missing();
  node->set_role(static_cast<uint32_t>(backup.role));
  node->set_rank(backup.rank);
  return stalled;
}

}  // namespace poseidon
